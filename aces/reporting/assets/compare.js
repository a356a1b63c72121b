// Several runs: a line each, one threshold for all.

const {runs, radii} = JSON.parse(byId("data").textContent);
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#1c2126", "#56b4e9"];
const DASHES = ["none", "7 3", "2 3", "9 3 2 3"];
const colour = k => COLOURS[k % COLOURS.length],
  dash = k => DASHES[Math.floor(k / COLOURS.length) % DASHES.length];
const state = {theta: 0.5, front: null};
const charts = [];
const stepOf = run =>
  run.thetas.reduce(
    (best, theta, t) => (Math.abs(theta - state.theta) < Math.abs(run.thetas[best] - state.theta) ? t : best),
    0,
  );
const [nacLow, nacHigh] = extent(runs.flatMap(run => [...run.nac, run.core, run.alone.nac])).map(v =>
  Math.min(1, Math.max(0, v)),
);

// `of(run)` gives the run's values over theta and its certification network's, or nothing where it has no such radius.
function tradeOff(host, {of, axis, name, format}) {
  const known = runs.map((run, k) => ({run, k, values: of(run)})).filter(entry => entry.values.curve);
  const high = Math.max(0.01, ...known.flatMap(({values}) => [...values.curve, values.alone])) * 1.06;
  const strength = k => (state.front === null || state.front === k ? 1 : 0.18);
  charts.push(
    new Chart(host, {
      height: 280,
      x: {low: nacLow, high: nacHigh, label: "natural accuracy, %", format: v => +(100 * v).toFixed(1)},
      y: {low: 0, high, ...axis},
      draw() {},
      move(chart) {
        for (const {run, k, values} of known) {
          chart.layer = chart.moving.appendChild(element("g", {opacity: strength(k)}));
          chart.line(run.nac, values.curve, colour(k), {"stroke-dasharray": dash(k)});
          chart.mark("square", run.core, 0, colour(k), 5);
          chart.mark("triangle", run.alone.nac, values.alone, colour(k), 5);
          chart.point(run.nac[stepOf(run)], values.curve[stepOf(run)], colour(k));
        }
        const said = known.map(
          ({run, values}) => `${run.label}: ${format(values.curve[stepOf(run)])} at ${percent(run.nac[stepOf(run)])} %`,
        );
        return `${name} over natural accuracy at θ = ${state.theta.toFixed(2)}. ${said.join("; ")}.`;
      },
    }),
  );
}

for (const r of radii) {
  const host = element("div", {class: "chart"});
  byId("panels").append(element("div", {class: "panel"}, element("h3", {}, `r = ${r}`), host));
  tradeOff(host, {
    of: run => ({curve: run.certified_accuracy[r], alone: run.alone.certified_accuracy[r]}),
    name: `Certified accuracy at radius ${r}`,
    axis: {label: "certified accuracy, %", format: v => +(100 * v).toFixed(2)},
    format: v => `${percent(v)} %`,
  });
}
tradeOff(byId("acr-chart"), {
  of: run => ({curve: run.acr, alone: run.alone.acr}),
  name: "Average certified radius",
  axis: {label: "average certified radius", format: v => +v.toFixed(3)},
  format: v => downwards(v),
});

byId("legend").append(
  ...runs.map((run, k) => {
    const button = element(
      "button",
      {type: "button", "aria-pressed": false},
      icon("circle", colour(k), dash(k)),
      run.label,
    );
    button.addEventListener("click", () => {
      state.front = state.front === k ? null : k;
      update();
    });
    return element("li", {}, button);
  }),
);

// The threshold, and what it means for the run in front, or for all of a few.
function spoken() {
  const heard = runs.filter((run, k) => (state.front === null ? runs.length <= 3 : state.front === k));
  const said = heard.map(run => {
    const t = stepOf(run);
    return `${run.label}: natural accuracy ${percent(run.nac[t])} percent, average certified radius ${downwards(run.acr[t])}`;
  });
  return [`theta ${state.theta.toFixed(2)}`, ...said].join("; ");
}

function update() {
  byId("theta-value").textContent = state.theta.toFixed(2);
  byId("theta").setAttribute("aria-valuetext", spoken());
  byId("legend")
    .querySelectorAll("button")
    .forEach((button, k) => button.setAttribute("aria-pressed", state.front === k));
  charts.forEach(chart => chart.move());
}
byId("theta").addEventListener("input", event => {
  state.theta = event.target.value / 100;
  update();
});
update();
charts.forEach(chart => chart.render());
document.documentElement.dataset.ready = "yes";
