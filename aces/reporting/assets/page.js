// The report of one run: everything follows one number, the step of the slider.
(() => {
const data = JSON.parse(byId("data").textContent);
const {thetas, radii, curve, bands, images} = data;
const N = images.count, T = thetas.length;
const COLOUR = {aces: "#0072b2", core: "#e69f00", certify: "#009e73", agree: "#56b4e9", abstain: "#7d848c", baseline: "#cc79a7", wrong: "#b3400a"};
const ROUTES = [
  {name: "certify", shape: "triangle", who: "certification network", says: "answered by the certification network, with a radius"},
  {name: "core", shape: "square", who: "core network", says: "answered by the core network, no radius"},
  {name: "agree", shape: "circle", who: "both agree", says: "selection undecided, but both networks agree"},
  {name: "abstain", shape: "bar", who: "abstains", says: "no answer"},
];
const ABSTAIN = -1;
const matrix = (Type, text, width) => { const flat = decode(Type, text); return row => flat.subarray(row * width, (row + 1) * width); };
const perImage = {
  route: matrix(Uint8Array, images.route, T), radius: matrix(Float32Array, images.radius, T),
  natural: matrix(Int16Array, images.natural, T), selected: matrix(Uint32Array, images.selected, T),
  pSelect: matrix(Float32Array, images.p_select, T), pClass: matrix(Float32Array, images.p_class, T),
  histogram: matrix(Uint32Array, images.histogram, images.bins),
  joint: matrix(Uint32Array, images.joint, images.bins),
};
const perTheta = {
  profile: matrix(Float32Array, data.profile.aces, data.profile.radius.length),
  selectionRadius: matrix(Float32Array, data.selection_radius.values, data.selection_radius.percentile.length),
  ecdf: matrix(Float32Array, data.ecdf.p_select, data.ecdf.share.length),
};
const state = {step: data.start, image: null};
const charts = [], detailCharts = [];
const className = id => id === ABSTAIN ? "no answer" : data.classes[id] ?? `class ${id}`;
const theta = (step = state.step) => thetas[step].toFixed(data.theta_digits);
const percentAxis = (low, high, label) => ({low, high, label, format: v => Math.round(100 * v)});
const add = (list, id, spec) => { const chart = new Chart(typeof id === "string" ? byId(id) : id, spec); list.push(chart); return chart; };

// ---- the trade-off

const everyNac = [...curve.nac, ...bands.nac.flat(), data.core.nac, data.alone.nac, ...data.baseline.map(b => b.nac), ...data.entropy_selection.map(e => e.nac)];
const [nacLow, nacHigh] = extent(everyNac).map(v => Math.min(1, Math.max(0, v)));
const nacAxis = percentAxis(nacLow, nacHigh, "natural accuracy, %");
const reachable = radii.map((r, k) => k).filter(k => radii[k] > 0 && radii[k] <= data.ceiling);
const certifiedHigh = Math.max(.05, ...reachable.flatMap(k => [...bands.certified_accuracy[k][1], data.alone.certified_accuracy[k],
  ...data.baseline.map(b => b.certified_accuracy[k])])) * 1.05;

// ACES between its two networks, and the baselines, with `values` (one for each theta) upwards.
function tradeOff(host, {values, interval, axis, alone, baseline, otherSelection, ceiling, name, format}) {
  return add(charts, host, {
    x: nacAxis, y: axis,
    draw(chart) {
      if (ceiling !== undefined) {
        chart.add("line", {x1: chart.margin.left, x2: chart.width - chart.margin.right, y1: chart.Y(ceiling), y2: chart.Y(ceiling), stroke: "#57606a", "stroke-dasharray": "6 4"});
        chart.text(chart.margin.left + 6, chart.Y(ceiling) + 15, `ceiling ${downwards(ceiling)}`);
      }
      chart.band(curve.nac, interval[0], interval[1], COLOUR.aces);
      if (data.baseline.length) {
        chart.line(data.baseline.map(b => b.nac), baseline, COLOUR.baseline, {"stroke-dasharray": "1.5 4", "stroke-linecap": "round"});
        data.baseline.forEach((b, k) => chart.mark("diamond", b.nac, baseline[k], COLOUR.baseline, 4).append(
          element("title", {}, `certification network evaluated at σ = ${b.sigma}`)));
      }
      if (otherSelection.length) chart.line(data.entropy_selection.map(e => e.nac), otherSelection, COLOUR.aces, {"stroke-width": 1.4, "stroke-dasharray": "5 4"});
      chart.line(curve.nac, values, COLOUR.aces, {"stroke-width": 2.4});
      chart.mark("square", data.core.nac, 0, COLOUR.core, 6);
      chart.mark("triangle", data.alone.nac, alone, COLOUR.certify, 6);
    },
    move(chart) {
      const t = state.step;
      chart.point(curve.nac[t], values[t], COLOUR.aces, [bands.nac[0][t], bands.nac[1][t]], [interval[0][t], interval[1][t]]);
      return `${name} over natural accuracy. At θ = ${theta()}: ${format(values[t])} at natural accuracy ${percent(curve.nac[t])} %. ` +
        `Core network: 0 at ${percent(data.core.nac)} %. Certification network alone: ${format(alone)} at ${percent(data.alone.nac)} %.`;
    },
    pick: (chart, x, y) => setStep(nearest(chart, curve.nac, values, x, y, state.step)),
  });
}

for (const k of reachable) {
  const value = element("b"), host = element("div", {class: "chart"});
  byId("panels").append(element("div", {class: "panel"}, element("h3", {}, `r = ${radii[k]}`, value), host));
  tradeOff(host, {
    values: curve.certified_accuracy[k], interval: bands.certified_accuracy[k], alone: data.alone.certified_accuracy[k],
    baseline: data.baseline.map(b => b.certified_accuracy[k]), otherSelection: data.entropy_selection.map(e => e.certified_accuracy[k]), axis: percentAxis(0, certifiedHigh, "certified accuracy, %"),
    name: `Certified accuracy at radius ${radii[k]}`, format: v => `${percent(v)} %`,
  }).value = value;
}
const beyond = radii.filter(r => r > data.ceiling);
if (beyond.length) {
  byId("unreachable").hidden = false;
  byId("unreachable").textContent = `No figure for r = ${beyond.join(", ")}: with n = ${data.n.toLocaleString("en")} draws no radius can exceed ${downwards(data.ceiling)}.`;
}

tradeOff(byId("acr-chart"), {
  values: curve.acr, interval: bands.acr, alone: data.alone.acr, baseline: data.baseline.map(b => b.acr), otherSelection: data.entropy_selection.map(e => e.acr), ceiling: data.ceiling,
  axis: {low: 0, high: Math.max(data.ceiling, ...data.baseline.map(b => b.acr)) * 1.06, label: "average certified radius", format: v => +v.toFixed(3)},
  name: "Average certified radius", format: v => downwards(v),
});

add(charts, "profile-chart", {
  x: {low: 0, high: data.profile.radius.at(-1), label: "radius r", format: v => +v.toFixed(3)}, y: percentAxis(0, 1, "certified accuracy, %"),
  draw: chart => chart.line(data.profile.radius, data.profile.alone, COLOUR.certify, {"stroke-dasharray": "6 3", "stroke-width": 1.6}),
  move(chart) {
    const row = perTheta.profile(state.step), {radius} = data.profile;
    chart.band(radius, radius.map(() => 0), row, COLOUR.aces);
    chart.line(radius, row, COLOUR.aces, {"stroke-width": 2.4});
    chart.text(chart.width - chart.margin.right, chart.margin.top + 8, `ACES, area ${downwards(curve.acr[state.step])}`, {class: "strong", "text-anchor": "end"});
    chart.text(chart.width - chart.margin.right, chart.margin.top + 26, `certification network alone, ${downwards(data.alone.acr)}`, {"text-anchor": "end"});
    return `Certified accuracy over the radius at θ = ${theta()}: ${percent(row[0])} % at r = 0, falling to 0 at the ceiling of ${downwards(data.ceiling)}.`;
  },
});

function legend(id, entries) {
  byId(id).replaceChildren(...entries.map(entry => element("li", {}, entry.icon, ...entry.words)));
}
legend("legend", [
  {icon: icon(null, COLOUR.aces, "30 0"), words: ["ACES, one point for each θ"]},
  {icon: icon("square", COLOUR.core), words: [`core network, ${data.core.name}`]},
  {icon: icon("triangle", COLOUR.certify), words: [`certification network alone, ${data.alone.name}`]},
  ...data.baseline.length ? [{icon: icon("diamond", COLOUR.baseline, "1.5 4"), words: ["the same network at other noise levels"]}] : [],
  ...data.entropy_selection.length ? [{icon: icon(null, COLOUR.aces, "5 4"), words: ["ACES selecting by entropy"]}] : [],
]);

// ---- the selection

const binEdges = data.correctness.certified.map((_, k, all) => k / all.length);
const tallest = Math.max(...data.correctness.certified.map((c, k) => c + data.correctness.other[k]));
add(charts, "correctness-chart", {
  x: {low: 0, high: 1, label: `median ${data.score}`, format: v => +v.toFixed(1)}, y: {low: 0, high: tallest * 1.12, label: "images", format: v => Math.round(v)},
  pick: (chart, x) => setStep(stepAt(chart, x)),
  draw(chart) {
    const {certified, other} = data.correctness, width = chart.X(binEdges[1]) - chart.X(0) - 1;
    binEdges.forEach((edge, k) => {
      const base = {x: chart.X(edge) + .5, width};
      chart.add("rect", {...base, y: chart.Y(certified[k]), height: chart.Y(0) - chart.Y(certified[k]), fill: COLOUR.certify});
      chart.add("rect", {...base, y: chart.Y(certified[k] + other[k]), height: chart.Y(0) - chart.Y(other[k]), fill: "#c9ced4"});
    });
    const key = chart.width - chart.margin.right;
    chart.text(key, chart.margin.top + 22, "certified correctly", {"text-anchor": "end", style: "fill:#00694c;font-weight:600"});
    chart.text(key, chart.margin.top + 38, "all others", {"text-anchor": "end"});
  },
  move(chart) {
    chart.rule(thetas[state.step], `θ = ${theta()}`);
    return `Histogram of the median ${data.score}: of ${data.count} images, ${data.correctness.certified.reduce((a, b) => a + b)} are certified correctly at r = ${data.correctness.radius}, mostly at low values.`;
  },
});

const {percentile} = data.selection_radius, faint = [.1, .3, .5, .7, .9].map(v => thetas.findIndex(theta => theta >= v - 1e-9));
add(charts, "selection-chart", {
  x: {low: 0, high: 100, label: "percentile of images", format: v => v}, y: {low: -data.selection_radius.ceiling * 1.05, high: data.selection_radius.ceiling * 1.05, label: "selection radius", format: v => +v.toFixed(2)},
  draw: chart => faint.forEach(t => chart.line(percentile, perTheta.selectionRadius(t), "#c9ced4", {"stroke-width": 1.2})),
  move(chart) {
    chart.line(percentile, perTheta.selectionRadius(state.step), COLOUR.aces, {"stroke-width": 2.4});
    chart.text(chart.width - chart.margin.right, chart.Y(0) + 16, `θ = ${theta()}`, {class: "strong", "text-anchor": "end"});
    chart.text(chart.margin.left + 6, chart.margin.top + 6, "certification network ↑");
    chart.text(chart.width - chart.margin.right, chart.Y(chart.spec.y.low) - 8, "core network ↓", {"text-anchor": "end"});
    return `Radius of the selection over the percentile of images, at θ = ${theta()}.`;
  },
});

add(charts, "ecdf-chart", {
  x: {low: .5, high: 1, label: "share of draws p", format: v => v.toFixed(1)}, y: percentAxis(0, 1, "images with a share of at most p, %"),
  draw: chart => chart.line(data.ecdf.share, data.ecdf.p_class, COLOUR.certify, {"stroke-dasharray": "6 3"}),
  move(chart) {
    chart.line(data.ecdf.share, perTheta.ecdf(state.step), COLOUR.aces, {"stroke-width": 2.4});
    const label = (y, words, colour, line) => {
      chart.add("line", {x1: chart.X(.515), x2: chart.X(.515) + 24, y1: y - 4, y2: y - 4, stroke: colour, "stroke-width": 2.4, "stroke-dasharray": line});
      chart.text(chart.X(.515) + 30, y, words);
    };
    label(chart.margin.top + 12, "p of the class (A)", COLOUR.certify, "6 3");
    label(chart.margin.top + 30, `p of the selection (S) at θ = ${theta()}`, COLOUR.aces, "24 0");
    return `Empirical distributions of the class and selection probabilities at θ = ${theta()}.`;
  },
});

function stepAt(chart, x) {
  const share = (x - chart.X(0)) / (chart.X(1) - chart.X(0));
  return Math.min(T - 1, Math.max(0, Math.round(share * (T - 1))));
}

// ---- the routes

function drawRoutes() {
  const shares = ROUTES.map((route, k) => data.routes[k][state.step]);
  for (const host of document.querySelectorAll("[data-routes]")) {
    if (!host.children.length) host.append(...ROUTES.map(route => element("span", {class: `route-${route.name}`})));
    ROUTES.forEach((route, k) => {
      host.children[k].style.flexGrow = shares[k];
      host.children[k].style.display = shares[k] > 0 ? "" : "none";
      if (host.dataset.routes === "full") host.children[k].textContent = shares[k] > .06 ? `${percent(shares[k])} %` : "";
    });
  }
  const words = ROUTES.map((route, k) => `${route.who} ${percent(shares[k])} %`);
  document.querySelector("[data-routes=full]").setAttribute("aria-label", `Routes at θ = ${theta()}: ${words.join(", ")}`);
  document.querySelectorAll("#routes-legend b").forEach((node, k) => { node.textContent = `${percent(shares[k])} %`; });
}
legend("routes-legend", ROUTES.map(r => ({icon: icon(r.shape, COLOUR[r.name]), words: [element("b", {"data-share": r.name}), element("span", {}, r.says)]})));
legend("wall-legend", [...ROUTES.map(r => ({icon: icon(r.shape, COLOUR[r.name]), words: [r.who]})), {icon: icon("cross", COLOUR.wrong), words: ["wrong answer"]}]);

// ---- the wall of images

const wall = byId("wall"), tiles = [];
const prediction = (i, t) => [images.guess[i], images.core[i], images.guess[i], ABSTAIN][perImage.route(i)[t]];
const answer = (i, t) => { const given = prediction(i, t); return given === ABSTAIN ? "none" : given === images.label[i] ? "right" : "wrong"; };
const shown = new Uint8Array(N).fill(255);  // route and answer each tile shows now

function place(node, i) {
  const {columns, rows} = images.sprite;
  const share = (k, count) => count > 1 ? 100 * k / (count - 1) : 0;
  node.style.backgroundPosition = `${share(i % columns, columns)}% ${share(Math.floor(i / columns), rows)}%`;
}

function describe(i) {
  const t = state.step, route = ROUTES[perImage.route(i)[t]], given = answer(i, t);
  const radius = route.name === "certify" ? `, radius ${downwards(perImage.radius(i)[t])}` : "";
  return `Image ${images.index[i]}, ${className(images.label[i])}: ${given === "none" ? "no answer" : `${className(prediction(i, t))}, ${given}`}, ${route.who}${radius}`;
}

function buildWall() {
  for (let i = 0; i < N; i++) {
    const picture = element("span", {class: "thumb"});
    place(picture, i);
    const tile = element("button", {type: "button", class: "tile", tabindex: -1, "data-image": i, "aria-pressed": false}, picture);
    tiles.push(tile);
  }
  wall.addEventListener("click", event => { const tile = event.target.closest(".tile"); if (tile) choose(+tile.dataset.image, true); });
  wall.addEventListener("keydown", walk);
  // A label is only read when a tile is reached: it is written then, not 500 times a step.
  for (const kind of ["focusin", "pointerover"]) wall.addEventListener(kind, event => {
    const tile = event.target.closest(".tile");
    if (tile) { tile.title = describe(+tile.dataset.image); tile.setAttribute("aria-label", tile.title); }
  });
}

function orderWall(kind) {
  const key = {entropy: i => images.median[i], class: i => images.label[i] + i / N, index: i => images.index[i]}[kind];
  const order = tiles.map((_, i) => i).sort((a, b) => key(a) - key(b));
  wall.replaceChildren(...order.map(i => tiles[i]));
  return order;
}

function walk(event) {
  const here = document.activeElement.closest(".tile"), all = wall.children;
  if (!here) return;
  const perRow = Array.prototype.findIndex.call(all, tile => tile.offsetTop > all[0].offsetTop);
  const jump = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: perRow < 0 ? all.length : perRow, ArrowUp: -(perRow < 0 ? all.length : perRow)}[event.key];
  const place = Array.prototype.indexOf.call(all, here);
  const next = event.key === "Home" ? all[0] : event.key === "End" ? all[all.length - 1] : jump ? all[place + jump] : null;
  if (event.key === "Escape") closeDetail();
  if (!next) return;
  event.preventDefault();
  reach(+next.dataset.image);
  next.focus();
}

function reach(i) {  // one tile at a time is in the tab order
  wall.querySelector("[tabindex='0']")?.setAttribute("tabindex", -1);
  tiles[i].setAttribute("tabindex", 0);
}

function paintWall() {
  const t = state.step;
  for (let i = 0; i < N; i++) {
    const route = perImage.route(i)[t], given = answer(i, t), code = route * 4 + given.length;
    if (shown[i] === code) continue;
    shown[i] = code;
    tiles[i].dataset.route = ROUTES[route].name;
    tiles[i].dataset.answer = given;
  }
}

// ---- one image

function choose(i, open) {
  if (state.image !== null) tiles[state.image].setAttribute("aria-pressed", false);
  state.image = i;
  tiles[i].setAttribute("aria-pressed", true);
  reach(i);
  if (open) byId("detail").classList.add("open");
  place(byId("portrait"), i);
  byId("portrait").setAttribute("aria-label", `Test image ${images.index[i]}, ${className(images.label[i])}`);
  byId("detail-title").textContent = className(images.label[i]);
  drawDetail();
  detailCharts.forEach(chart => chart.render());
}

function closeDetail() {
  byId("detail").classList.remove("open");
  if (state.image !== null) tiles[state.image].focus();
}

function verdict(id, i) {
  return element("span", {class: id === images.label[i] ? "right" : "bad"}, `${className(id)} ${id === ABSTAIN ? "" : id === images.label[i] ? "✓" : "✗"}`);
}

function drawDetail() {
  const i = state.image, t = state.step, route = ROUTES[perImage.route(i)[t]], draws = images.draws[i];
  const selected = perImage.selected(i)[t], radius = perImage.radius(i)[t];
  byId("detail-answer").replaceChildren("ACES: ", verdict(prediction(i, t), i), element("br"),
    element("small", {}, `${route.who}, radius `, element("span", {"data-own": "radius"}, downwards(radius))));
  const votes = images.top[i].map(([id, count]) => `${className(id)} ${percent(count / draws)} %`).join(", ");
  const rows = [
    ["core network", verdict(images.core[i], i)],
    ["certification network", verdict(images.guess[i], i)],
    ["its votes", votes],
    ["p of the class (A)", `${percent(images.p_class_share[i])} %, at least ${percent(Math.floor(perImage.pClass(i)[t] * 1e4) / 1e4, 2)} %`],
    ["draws at or below θ", `${selected.toLocaleString("en")} of ${draws.toLocaleString("en")}`],
    ["p of the selection (S)", `${percent(Math.max(selected, draws - selected) / draws)} %, at least ${percent(Math.floor(perImage.pSelect(i)[t] * 1e4) / 1e4, 2)} %`],
    ["prediction alone", verdict(perImage.natural(i)[t], i)],
    ["without selection", `radius ${downwards(images.alone_radius[i])}`],
    ["test image", `number ${images.index[i]}`],
  ];
  byId("detail-facts").replaceChildren(...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  byId("histogram-caption").textContent = `${data.score[0].toUpperCase() + data.score.slice(1)} of ${draws.toLocaleString("en")} noisy copies; dark: those with the guessed class, ${className(images.guess[i])}.`;
}

add(detailCharts, "histogram-chart", {
  height: 150, margin: {left: 34, bottom: 30, top: 22},
  x: {low: 0, high: 1, format: v => +v.toFixed(1), ticks: [0, .2, .4, .6, .8, 1]}, y: {low: 0, high: 1, label: "share of draws, %", format: v => v},
  draw() {},
  move(chart) {
    if (state.image === null) return "";
    const all = perImage.histogram(state.image), joint = perImage.joint(state.image), most = Math.max(1, ...all);
    const width = chart.X(1 / images.bins) - chart.X(0), height = chart.Y(0) - chart.Y(.94);
    all.forEach((count, k) => {
      const box = (value, fill) => value && chart.add("rect", {x: chart.X(k / images.bins) + .4, width: width - .8, y: chart.Y(0) - height * value / most, height: height * value / most, fill});
      box(count, "#9cc7e0"); box(joint[k], COLOUR.aces);
    });
    chart.text(chart.margin.left - 8, chart.Y(.94) + 4, percent(most / images.draws[state.image], 0), {"text-anchor": "end"});
    chart.rule(thetas[state.step], `θ = ${theta()}`);
    return `Histogram of the ${data.score} of image ${images.index[state.image]}, median ${images.median[state.image].toFixed(2)}, threshold ${theta()}.`;
  },
  pick: (chart, x) => setStep(stepAt(chart, x)),
});
detailCharts[0].spec.y.ticks = [0];

add(detailCharts, "radius-chart", {
  height: 150, margin: {left: 34, bottom: 36, top: 20},
  x: {low: 0, high: 1, format: v => +v.toFixed(1), ticks: [0, .2, .4, .6, .8, 1]}, y: {low: 0, high: Math.max(data.ceiling, 1e-6), label: "radius", format: v => +v.toFixed(2)},
  draw() {},
  move(chart) {
    if (state.image === null) return "";
    const radius = perImage.radius(state.image), route = perImage.route(state.image), half = .5 / (T - 1);
    const edge = t => chart.X(Math.min(1, Math.max(0, thetas[t] - half)));
    for (let from = 0, t = 1; t <= T; t++) {
      if (t < T && route[t] === route[from]) continue;
      chart.add("rect", {x: edge(from), width: (t < T ? edge(t) : chart.X(1)) - edge(from), y: chart.Y(0) + 1, height: 6, fill: COLOUR[ROUTES[route[from]].name]});
      from = t;
    }
    chart.line(thetas, radius, COLOUR.aces);
    chart.rule(thetas[state.step], "");
    chart.add("circle", {cx: chart.X(thetas[state.step]), cy: chart.Y(radius[state.step]), r: 5, fill: "#fff", stroke: COLOUR.aces, "stroke-width": 2.5});
    return `Certified radius of image ${images.index[state.image]} over θ: ${downwards(radius[state.step])} at θ = ${theta()}, at most ${downwards(Math.max(...radius))}.`;
  },
  pick: (chart, x) => setStep(stepAt(chart, x)),
});

// ---- everything at one threshold

const live = name => document.querySelectorAll(`[data-live="${name}"]`);
const say = (name, words) => live(name).forEach(node => { node.textContent = words; });
const lead = reachable[0] ?? 0;  // the radius the first lines speak of

function sentence() {
  const t = state.step, bold = words => element("b", {}, words), part = curve.certified_accuracy[lead];
  byId("lede").replaceChildren("At ", element("i", {}, "θ"), ` = ${theta()} ACES answers `, bold(`${percent(curve.nac[t])} %`),
    ` of the images correctly and certifies `, bold(`${percent(part[t])} %`), ` at radius ${radii[lead]}. The core network answers `,
    bold(`${percent(data.core.nac)} %`), ` and certifies nothing; the certification network alone answers `, bold(`${percent(data.alone.nac)} %`),
    ` and certifies `, bold(`${percent(data.alone.certified_accuracy[lead])} %`), ".");
}

function fillRow() {
  const t = state.step, range = (pair, show) => `${show(pair[0][t])}–${show(pair[1][t])}`;
  const cell = (name, value, interval) => live(name).forEach(node => {
    if (node.tagName === "TD") node.replaceChildren(value, ...interval ? [element("small", {}, interval)] : []);
    else node.textContent = node.closest(".readout") && !name.startsWith("acr") ? `${value} %` : value;
  });
  cell("nac", percent(curve.nac[t]), range(bands.nac, percent));
  cell("acr", downwards(curve.acr[t]), range(bands.acr, v => downwards(v)));
  cell("abstention", percent(curve.abstention[t]));
  radii.forEach((r, k) => {
    cell(`certified_accuracy@${r}`, percent(curve.certified_accuracy[k][t]), range(bands.certified_accuracy[k], percent));
    cell(`selection_rate@${r}`, percent(curve.selection_rate[k][t]), range(bands.selection_rate[k], percent));
  });
  say("theta", theta());
  say("lead", `${percent(curve.certified_accuracy[lead][t])} %`);
  document.querySelectorAll(".results [data-theta]").forEach(row => row.classList.toggle("here", Math.abs(row.dataset.theta - thetas[t]) < 1e-9));
}

function setStep(step) {
  if (step === state.step) return;
  state.step = step;
  byId("theta").value = step;
  update();
}

function update() {
  const t = state.step, slider = byId("theta");
  byId("theta-value").textContent = theta();
  slider.setAttribute("aria-valuetext", `theta ${theta()}: natural accuracy ${percent(curve.nac[t])} percent, certified accuracy at radius ${radii[lead]} ${percent(curve.certified_accuracy[lead][t])} percent`);
  sentence(); fillRow(); drawRoutes(); paintWall();
  reachable.forEach((k, place) => { charts[place].value.textContent = `${percent(curve.certified_accuracy[k][t])} %`; });
  charts.forEach(chart => chart.move());
  if (state.image !== null) { drawDetail(); detailCharts.forEach(chart => chart.move()); }
}

// ---- begin

const slider = byId("theta");
slider.max = T - 1;
slider.value = state.step;
slider.addEventListener("input", () => setStep(+slider.value));
byId("order").addEventListener("change", event => orderWall(event.target.value));
byId("close").addEventListener("click", closeDetail);
document.addEventListener("keydown", event => { if (event.key === "Escape") byId("detail").classList.remove("open"); });
say("lead-radius", radii[lead]);
buildWall();
orderWall("entropy");
update();
charts.forEach(chart => chart.render());
choose(images.first, false);
document.documentElement.dataset.ready = "yes";
})();
