// The run, decoded, and the state of the page: everything follows one number, the step of the slider.

function decode(Type, text) {
  const characters = atob(text),
    bytes = new Uint8Array(characters.length);
  for (let k = 0; k < bytes.length; k++) bytes[k] = characters.charCodeAt(k);
  return new Type(bytes.buffer);
}

const data = JSON.parse(byId("data").textContent);
const {thetas, radii, radius_names: names, curve, bands, images} = data; // names: the radii as the columns are called
const N = images.count,
  T = thetas.length;
const COLOUR = {
  aces: "#0072b2",
  core: "#e69f00",
  certify: "#009e73",
  agree: "#56b4e9",
  abstain: "#7d848c",
  baseline: "#cc79a7",
  wrong: "#b3400a",
};
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
const matrix = (Type, text, width) => {
  const flat = decode(Type, text);
  return row => flat.subarray(row * width, (row + 1) * width);
};
const perImage = {
  route: matrix(Uint8Array, images.route, T),
  radius: matrix(Float32Array, images.radius, T),
  natural: matrix(Int16Array, images.natural, T),
  selected: matrix(Uint32Array, images.selected, T),
  pSelect: matrix(Float32Array, images.p_select, T),
  pClass: matrix(Float32Array, images.p_class, T),
  histogram: matrix(Uint32Array, images.histogram, images.bins),
  joint: matrix(Uint32Array, images.joint, images.bins),
};
const perTheta = {
  profile: matrix(Float32Array, data.profile.aces, data.profile.radius.length),
  selectionRadius: matrix(Float32Array, data.selection_radius.values, data.selection_radius.percentile.length),
  ecdf: matrix(Float32Array, data.ecdf.p_select, data.ecdf.share.length),
};
const state = {step: data.start, image: null};
const charts = [],
  detailCharts = [];
const className = id => (id === ABSTAIN ? "no answer" : (data.classes[id] ?? `class ${id}`));
const theta = (step = state.step) => thetas[step].toFixed(data.theta_digits);
const percentAxis = (low, high, label) => ({low, high, label, format: v => +(100 * v).toFixed(1)});
const add = (list, id, spec) => {
  const chart = new Chart(typeof id === "string" ? byId(id) : id, spec);
  list.push(chart);
  return chart;
};
