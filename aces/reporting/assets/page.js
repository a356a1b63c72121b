// One threshold for the whole page, and its beginning.

const live = name => document.querySelectorAll(`[data-live="${name}"]`);
const say = (name, words) =>
  live(name).forEach(node => {
    node.textContent = words;
  });
const lead = reachable[0] ?? 0; // the radius the first lines speak of

function sentence() {
  const t = state.step,
    bold = words => element("b", {}, words),
    part = curve.certified_accuracy[lead];
  byId("lede").replaceChildren(
    "At ",
    element("i", {}, "θ"),
    ` = ${theta()} ACES answers `,
    bold(`${percent(curve.nac[t])} %`),
    ` of the images correctly and certifies `,
    bold(`${percent(part[t])} %`),
    ` at radius ${names[lead]}. The core network answers `,
    bold(`${percent(data.core.nac)} %`),
    ` and certifies nothing; the certification network alone answers `,
    bold(`${percent(data.alone.nac)} %`),
    ` and certifies `,
    bold(`${percent(data.alone.certified_accuracy[lead])} %`),
    ".",
  );
}

function fillRow() {
  const t = state.step,
    range = (pair, show) => `${show(pair[0][t])}–${show(pair[1][t])}`;
  const cell = (name, value, interval) =>
    live(name).forEach(node => {
      if (node.tagName === "TD") node.replaceChildren(value, ...(interval ? [element("small", {}, interval)] : []));
      else node.textContent = node.closest(".readout") && !name.startsWith("acr") ? `${value} %` : value;
    });
  cell("nac", percent(curve.nac[t]), range(bands.nac, percent));
  cell(
    "acr",
    downwards(curve.acr[t]),
    range(bands.acr, v => downwards(v)),
  );
  cell("abstention", percent(curve.abstention[t]));
  names.forEach((r, k) => {
    cell(
      `certified_accuracy@${r}`,
      percent(curve.certified_accuracy[k][t]),
      range(bands.certified_accuracy[k], percent),
    );
    cell(`selection_rate@${r}`, percent(curve.selection_rate[k][t]), range(bands.selection_rate[k], percent));
  });
  say("theta", theta());
  say("lead", `${percent(curve.certified_accuracy[lead][t])} %`);
  document
    .querySelectorAll(".results [data-theta]")
    .forEach(row => row.classList.toggle("here", Math.abs(row.dataset.theta - thetas[t]) < 1e-9));
}

function setStep(step) {
  if (step === state.step) return;
  state.step = step;
  byId("theta").value = step;
  update();
}

function update() {
  const t = state.step,
    slider = byId("theta");
  byId("theta-value").textContent = theta();
  slider.setAttribute(
    "aria-valuetext",
    `theta ${theta()}: natural accuracy ${percent(curve.nac[t])} percent, certified accuracy at radius ${names[lead]} ${percent(curve.certified_accuracy[lead][t])} percent`,
  );
  sentence();
  fillRow();
  drawRoutes();
  paintWall();
  reachable.forEach((k, place) => {
    charts[place].value.textContent = `${percent(curve.certified_accuracy[k][t])} %`;
  });
  charts.forEach(chart => chart.move());
  if (state.image !== null) {
    drawDetail();
    detailCharts.forEach(chart => chart.move());
  }
}

// ---- begin

const slider = byId("theta");
slider.max = T - 1;
slider.value = state.step;
slider.addEventListener("input", () => setStep(+slider.value));
byId("order").addEventListener("change", event => orderWall(event.target.value));
byId("close").addEventListener("click", closeDetail);
document.addEventListener("keydown", event => {
  if (event.key === "Escape") closeDetail();
});
say("lead-radius", names[lead]);
buildWall();
orderWall("entropy");
update();
charts.forEach(chart => chart.render());
choose(data.first, false);
document.documentElement.dataset.ready = "yes";
