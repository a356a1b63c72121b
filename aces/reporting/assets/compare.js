// Several runs, a line each, grouped by dataset; one threshold for all, or each run's own.

const {groups} = JSON.parse(byId("data").textContent);
const COLOURS = ["--run-0", "--run-1", "--run-2", "--run-3", "--run-4", "--run-5", "--run-6"];
const DASHES = ["none", "7 3", "2 3", "9 3 2 3"];
const colour = k => `var(${COLOURS[k % COLOURS.length]})`,
  dash = k => DASHES[Math.floor(k / COLOURS.length) % DASHES.length];
const state = {theta: null, front: null}; // theta null: each run at its working point
const charts = [];
const named = selector => (place => document.querySelector(`[data-${selector}="${place}"]`));
const stepOf = run =>
  state.theta === null
    ? run.start
    : run.thetas.reduce(
        (best, theta, t) => (Math.abs(theta - state.theta) < Math.abs(run.thetas[best] - state.theta) ? t : best),
        0,
      );
const where = () => (state.theta === null ? "at the working points" : `at θ = ${state.theta.toFixed(2)}`);

// `of(series, run)` gives the values over theta, or nothing where a run has no such radius; `alone(run)` the network's.
function tradeOff(place, host, {of, alone, axis, name, format, radius}) {
  const {runs} = groups[place];
  const [nacLow, nacHigh] = extent(runs.flatMap(run => [...run.nac, run.core, run.alone.nac])).map(v =>
    Math.min(1, Math.max(0, v)),
  );
  const known = runs.map((run, k) => ({run, k, values: of(run, run), network: alone(run)})).filter(one => one.values);
  const other = ({run}) => run.others.map(series => ({series, values: of(series, run)})).filter(one => one.values);
  const high =
    Math.max(
      0.01,
      ...known.flatMap(one => [...one.values, one.network, ...other(one).flatMap(({values}) => values)]),
    ) * 1.06;
  const strength = k => (state.front === null || state.front === `${place} ${k}` ? 1 : 0.18);
  const words = (run, series, values, rule) => t => [
    run.label,
    rule,
    `θ = ${series.thetas[t].toFixed(2)}${radius?.(run) ? `, r = ${radius(run)}` : ""}`,
    `${name.toLowerCase()} ${format(values[t])}`,
    `natural accuracy ${percent(series.nac[t])} %`,
  ];
  charts.push(
    new Chart(host, {
      height: 280,
      x: {low: nacLow, high: nacHigh, label: "natural accuracy, %", format: v => +(100 * v).toFixed(1)},
      y: {low: 0, high, ...axis},
      draw() {},
      move(chart) {
        for (const one of known) {
          const {run, k, values, network} = one;
          chart.layer = chart.moving.appendChild(element("g", {opacity: strength(k)}));
          for (const {series, values: others} of other(one))
            chart.line(series.nac, others, colour(k), {class: "other", "stroke-width": 1.2, "stroke-dasharray": "4 3"});
          chart.line(run.nac, values, colour(k), {class: "run", "stroke-dasharray": dash(k)});
          chart.mark("square", run.core, 0, colour(k), 5);
          chart.mark("triangle", run.alone.nac, network, colour(k), 5);
          chart.point(run.nac[stepOf(run)], values[stepOf(run)], colour(k));
        }
        const said = known.map(
          ({run, values}) => `${run.label}: ${format(values[stepOf(run)])} at ${percent(run.nac[stepOf(run)])} %`,
        );
        return `${name} over natural accuracy ${where()}. ${said.join("; ")}.`;
      },
      points: () =>
        known.flatMap(one => [
          {
            xs: one.run.nac,
            ys: one.values,
            start: stepOf(one.run),
            words: words(one.run, one.run, one.values, `${one.run.rule} rule`),
          },
          ...other(one).map(({series, values}) => ({
            xs: series.nac,
            ys: values,
            words: words(one.run, series, values, series.rule),
          })),
          {
            xs: [one.run.alone.nac],
            ys: [one.network],
            words: () => [
              one.run.label,
              "certification network alone",
              `${name.toLowerCase()} ${format(one.network)}`,
              `natural accuracy ${percent(one.run.alone.nac)} %`,
            ],
          },
        ]),
    }),
  );
}

groups.forEach((group, place) => {
  group.columns.forEach((title, column) => {
    const host = element("div", {class: "chart"});
    named("panels")(place).append(element("div", {class: "panel"}, element("h3", {}, title), host));
    tradeOff(place, host, {
      of: series => series.certified[column],
      alone: run => run.alone.certified[column] ?? 0,
      radius: run => run.radii[column],
      name: "Certified accuracy",
      axis: {label: "certified accuracy, %", format: v => +(100 * v).toFixed(2)},
      format: v => `${percent(v)} %`,
    });
  });
  tradeOff(place, named("acr")(place), {
    of: series => series.acr,
    alone: run => run.alone.acr,
    name: "Average certified radius",
    axis: {label: "average certified radius", format: v => +v.toFixed(3)},
    format: v => downwards(v),
  });
  named("legend")(place).append(
    ...group.runs.map((run, k) => {
      const key = `${place} ${k}`,
        button = element(
          "button",
          {type: "button", "aria-pressed": false, "data-run": key},
          icon("circle", colour(k), dash(k)),
          run.label,
        );
      button.addEventListener("click", () => {
        state.front = state.front === key ? null : key;
        update();
      });
      return element("li", {}, button);
    }),
  );
});

// The threshold, and what it means for the run in front, or for all of a few.
function spoken() {
  const all = groups.flatMap((group, place) => group.runs.map((run, k) => ({run, key: `${place} ${k}`})));
  const heard = all.filter(({key}) => (state.front === null ? all.length <= 3 : state.front === key));
  const said = heard.map(({run}) => {
    const t = stepOf(run);
    return `${run.label}: natural accuracy ${percent(run.nac[t])} percent, average certified radius ${downwards(run.acr[t])}`;
  });
  return [state.theta === null ? "each run's working point" : `theta ${state.theta.toFixed(2)}`, ...said].join("; ");
}

function update() {
  byId("theta-value").textContent = state.theta === null ? "own" : state.theta.toFixed(2);
  byId("theta").setAttribute("aria-valuetext", spoken());
  byId("own").setAttribute("aria-pressed", state.theta === null);
  document
    .querySelectorAll("[data-run]")
    .forEach(button => button.setAttribute("aria-pressed", state.front === button.dataset.run));
  charts.forEach(chart => chart.move());
}
byId("theta").addEventListener("input", event => {
  state.theta = event.target.value / 100;
  update();
});
byId("own").addEventListener("click", () => {
  state.theta = null;
  update();
});
update();
Chart.renderAll(charts);
document.documentElement.dataset.ready = "yes";
