// One image's own numbers.

function choose(i, open) {
  if (state.image !== null) tiles[state.image].setAttribute("aria-pressed", false);
  state.image = i;
  tiles[i].setAttribute("aria-pressed", true);
  if (!tiles[i].hidden) reach(i);
  place(byId("portrait"), i);
  byId("portrait").setAttribute("aria-label", `Test image ${images.index[i]}, ${className(images.label[i])}`);
  byId("detail-title").replaceChildren(
    className(images.label[i]),
    element("small", {}, ` test image ${images.index[i]}`),
  );
  drawDetail();
  if (open) openDetail();
  Chart.renderAll(detailCharts);
  if (open) writeAddress();
}

// Beside the wall the details are announced; on a small screen they lie over it, and the focus goes there and back.
const isSheet = () => getComputedStyle(byId("close")).display !== "none";
let cameFrom = null;

function openDetail() {
  cameFrom = document.activeElement;
  byId("detail").classList.add("open");
  tip.hide();
  if (isSheet()) byId("detail").focus();
  else byId("announcement").textContent = describe(state.image);
}

function closeDetail() {
  const open = isSheet() && byId("detail").classList.contains("open");
  byId("detail").classList.remove("open");
  if (open) (cameFrom?.isConnected && !cameFrom.hidden ? cameFrom : tiles[state.image]).focus();
}

function verdict(id, i) {
  return element(
    "span",
    {class: id === images.label[i] ? "right" : "bad"},
    `${className(id)} ${id === ABSTAIN ? "" : id === images.label[i] ? "✓" : "✗"}`,
  );
}

const symbol = (index, words) =>
  element("span", {}, element("i", {}, "p"), element("sub", {}, index), ` of the ${words}`);
const atLeast = bound => `≥\u00a0${downwards(100 * bound, 2)}\u00a0%`;
const bounded = (share, bound) => `${percent(share)}\u00a0%, ${atLeast(bound)}`;

// The probabilities the radius rests on: two events by the paper's rule, one by the confident rule.
function probabilities(i, t) {
  const draws = images.draws[i],
    selecting = perImage.selecting(i)[t],
    bounds = [perImage.pClass(i)[t], perImage.pSelect(i)[t]];
  if (data.rule === "confident")
    return [
      ["p_class", symbol("A", "class, sure"), bounded(selecting / draws, bounds[0])],
      ["p_select", symbol("S", "selection"), atLeast(bounds[1])],
    ];
  const larger = Math.max(selecting, images.valid[i] - selecting) / draws;
  return [
    ["p_class", symbol("A", "class"), bounded(images.p_class_share[i], bounds[0])],
    ["p_select", symbol("S", "selection"), bounded(larger, bounds[1])],
  ];
}

function drawDetail() {
  const i = state.image,
    t = state.step,
    route = ROUTES[perImage.route(i)[t]],
    draws = images.draws[i];
  const selecting = perImage.selecting(i)[t],
    radius = perImage.radius(i)[t];
  byId("detail-answer").replaceChildren(
    "ACES: ",
    verdict(prediction(i, t), i),
    element("br"),
    element("small", {}, `${route.who}, radius `, element("span", {"data-own": "radius"}, downwards(radius))),
  );
  const votes = images.top[i].map(([id, count]) => `${className(id)}: ${percent(count / draws)}\u00a0%`).join(", ");
  const rows = [
    ["core", "core network", verdict(images.core[i], i)],
    ["guess", "certification network", verdict(images.guess[i], i)],
    ["alone", "its radius, alone", downwards(images.alone_radius[i])],
    ["votes", "its votes", votes],
    ...probabilities(i, t),
    ["selected", data.selecting_words, `${whole(selecting)} of ${whole(draws)}`],
    ["natural", "ACES, no radius asked", verdict(perImage.natural(i)[t], i)],
  ];
  byId("detail-facts").replaceChildren(
    ...rows.flatMap(([own, name, value]) => [element("dt", {}, name), element("dd", {"data-own": own}, value)]),
  );
  byId("histogram-caption").textContent =
    `${data.score[0].toUpperCase() + data.score.slice(1)} of ${whole(draws)} noisy copies; in full colour those with the guessed class, ${className(images.guess[i])}.`;
}

add(detailCharts, "histogram-chart", {
  height: 150,
  margin: {left: 34, bottom: 30, top: 22},
  x: {low: 0, high: 1, format: v => +v.toFixed(1), ticks: [0, 0.2, 0.4, 0.6, 0.8, 1]},
  y: {low: 0, high: 1, label: "share of draws, %", format: v => v, ticks: [0]},
  draw() {},
  move(chart) {
    if (state.image === null) return "";
    const all = perImage.histogram(state.image),
      joint = perImage.joint(state.image),
      most = Math.max(1, ...all);
    const width = chart.X(1 / images.bins) - chart.X(0),
      height = chart.Y(0) - chart.Y(0.94);
    all.forEach((count, k) => {
      const box = (value, fill) =>
        value &&
        chart.add("rect", {
          x: chart.X(k / images.bins) + 0.4,
          width: width - 0.8,
          y: chart.Y(0) - (height * value) / most,
          height: (height * value) / most,
          fill,
        });
      box(count, "var(--aces-light)");
      box(joint[k], COLOUR.aces);
    });
    chart.text(chart.margin.left - 8, chart.Y(0.94) + 4, percent(most / images.draws[state.image], 0), {
      "text-anchor": "end",
    });
    chart.rule(thetas[state.step], `θ = ${theta()}`);
    return `Histogram of the ${data.score} of image ${images.index[state.image]}, median ${images.median[state.image].toFixed(2)}, threshold ${theta()}.`;
  },
  pick: (chart, x) => setStep(stepAt(chart, x)),
  points: () => {
    const counts = perImage.histogram(state.image),
      joint = perImage.joint(state.image),
      most = Math.max(1, ...counts);
    return [
      {
        xs: Array.from(counts, (_, k) => (k + 0.5) / images.bins),
        ys: Array.from(counts, count => (0.94 * count) / most),
        words: k => [
          `${data.score} ${(k / images.bins).toFixed(2)} to ${((k + 1) / images.bins).toFixed(2)}`,
          `${whole(counts[k])} draws`,
          `${whole(joint[k])} of them ${className(images.guess[state.image])}`,
        ],
      },
    ];
  },
});

add(detailCharts, "radius-chart", {
  height: 150,
  margin: {left: 34, bottom: 36, top: 20},
  x: {low: 0, high: 1, format: v => +v.toFixed(1), ticks: [0, 0.2, 0.4, 0.6, 0.8, 1]},
  y: {low: 0, high: Math.max(data.ceiling, 1e-6), label: "radius", format: v => +v.toFixed(2)},
  draw() {},
  move(chart) {
    if (state.image === null) return "";
    const radius = perImage.radius(state.image),
      route = perImage.route(state.image);
    const edge = t => chart.X(t ? (thetas[t - 1] + thetas[t]) / 2 : 0);
    for (let from = 0, t = 1; t <= T; t++) {
      if (t < T && route[t] === route[from]) continue;
      chart.add("rect", {
        x: edge(from),
        width: (t < T ? edge(t) : chart.X(1)) - edge(from),
        y: chart.Y(0) + 1,
        height: 6,
        fill: COLOUR[ROUTES[route[from]].name],
      });
      from = t;
    }
    chart.line(thetas, radius, COLOUR.aces);
    chart.rule(thetas[state.step], "");
    chart.add("circle", {
      cx: chart.X(thetas[state.step]),
      cy: chart.Y(radius[state.step]),
      r: 5,
      fill: "var(--panel)",
      stroke: COLOUR.aces,
      "stroke-width": 2.5,
    });
    return `Certified radius of image ${images.index[state.image]} over θ: ${downwards(radius[state.step])} at θ = ${theta()}, at most ${downwards(Math.max(...radius))}.`;
  },
  pick: (chart, x) => setStep(stepAt(chart, x)),
  points: () => [
    {
      xs: thetas,
      ys: perImage.radius(state.image),
      start: state.step,
      pick: setStep,
      words: t => [
        `θ = ${theta(t)}`,
        `radius ${downwards(perImage.radius(state.image)[t])}`,
        ROUTES[perImage.route(state.image)[t]].who,
      ],
    },
  ],
});
