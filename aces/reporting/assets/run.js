// The run, unpacked, and the state of the page: a threshold, an image, and the filters of the wall.

const TYPES = {u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i2: Int16Array, i4: Int32Array, f4: Float32Array};

// The page's data: base64 of gzip of a JSON header and the arrays it refers to (aces/reporting/packing.py).
async function unpack(text) {
  const characters = atob(text),
    bytes = new Uint8Array(characters.length);
  for (let k = 0; k < bytes.length; k++) bytes[k] = characters.charCodeAt(k);
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(plain).arrayBuffer(),
    length = new DataView(buffer).getUint32(0, true),
    body = 8 * Math.ceil((4 + length) / 8);
  return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)), (key, value) =>
    value?.$array ? new TYPES[value.$array[0]](buffer, body + value.$array[1], value.$array[2]) : value,
  );
}

const data = await unpack(byId("data").textContent);
const {thetas, radii, radius_names: names, curve, bands, images, all} = data; // names: the radii as the columns are called
const N = images.count,
  T = thetas.length,
  lead = data.lead; // the radius that short sentences speak of
const COLOUR = Object.fromEntries(
  ["aces", "core", "certify", "agree", "abstain", "baseline", "wrong", "right", "quiet", "soft"].map(name => [
    name,
    `var(--${name})`,
  ]),
);
const ROUTES = [
  {
    name: "certify",
    shape: "triangle",
    who: "certification network",
    says: "answered by the certification network, with a radius",
  },
  {name: "core", shape: "square", who: "core network", says: "answered by the core network, no radius"},
  {name: "agree", shape: "circle", who: "both agree", says: "selection undecided, but both networks agree"},
  {name: "abstain", shape: "bar", who: "abstains", says: "no answer"},
];
const ABSTAIN = -1;
const matrix = (flat, width) => row => flat.subarray(row * width, (row + 1) * width);
const perImage = {
  route: matrix(images.route, T),
  radius: matrix(images.radius, T),
  natural: matrix(images.natural, T),
  selecting: matrix(images.selecting, T),
  pSelect: matrix(images.p_select, T),
  pClass: matrix(images.p_class, T),
  histogram: matrix(images.histogram, images.bins),
  joint: matrix(images.joint, images.bins),
};
const perTheta = {
  profile: matrix(data.profile.aces, data.profile.radius.length),
  selectionRadius: matrix(data.selection_radius.values, data.selection_radius.percentile.length),
  ecdf: matrix(data.ecdf.p_select, data.ecdf.share.length),
  code: matrix(all.code, data.count), // of all images, also of those without a tile
};
const state = {step: data.start, image: null, order: "score", route: new Set(), answer: new Set(), class: new Set()};
const charts = [],
  detailCharts = [];
const className = id => (id === ABSTAIN ? "no answer" : (data.classes[id] ?? `class ${id}`));
const theta = (step = state.step) => thetas[step].toFixed(data.theta_digits);
const grouped = new Intl.NumberFormat("en"), // made once: to make one takes longer than to use it
  whole = count => grouped.format(count);
const percentAxis = (low, high, label) => ({low, high, label, format: v => +(100 * v).toFixed(1)});
const add = (list, id, spec) => {
  const chart = new Chart(typeof id === "string" ? byId(id) : id, spec);
  list.push(chart);
  return chart;
};

// CERTIFY's answer follows from the route: the guessed class, the core network's, or none.
const answered = (one, route) => [one.guess, one.core, one.guess, ABSTAIN][route];
const prediction = (i, t) =>
  answered({guess: images.guess[i], core: images.core[i]}, perImage.route(i)[t]);
const answer = (i, t) => {
  const given = prediction(i, t);
  return given === ABSTAIN ? "none" : given === images.label[i] ? "right" : "wrong";
};
