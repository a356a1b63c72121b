// One threshold for the whole page, and its beginning.

const live = name => document.querySelectorAll(`[data-live="${name}"]`);
const say = (name, words) =>
  live(name).forEach(node => {
    node.textContent = words;
  });

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
  byId("origin").textContent =
    t === data.start ? `This is the working point: ${data.working_point}.` : `The working point is θ = ${theta(data.start)}.`;
  byId("home").hidden = t === data.start;
}

function fillRow() {
  const t = state.step,
    range = (pair, show) => `${show(pair[0][t])}–${show(pair[1][t])}`;
  const cell = (name, value, interval) =>
    live(name).forEach(node => {
      if (node.tagName === "TD") node.replaceChildren(value, ...(interval ? [element("small", {}, interval)] : []));
      else node.textContent = node.closest(".readout") && !name.startsWith("acr") ? `${value} %` : value;
    });
  const share = (name, values, pair) => cell(name, percent(values[t]), range(pair, percent));
  share("nac", curve.nac, bands.nac);
  cell(
    "acr",
    downwards(curve.acr[t]),
    range(bands.acr, v => downwards(v)),
  );
  share("abstention", curve.abstention, bands.abstention);
  share("core_rate", curve.core_rate, bands.core_rate);
  names.forEach((r, k) => {
    share(`certified_accuracy@${r}`, curve.certified_accuracy[k], bands.certified_accuracy[k]);
    share(`selection_rate@${r}`, curve.selection_rate[k], bands.selection_rate[k]);
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
  writeAddressSoon();
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
  drawClasses();
  paintFilters();
  paintWall();
  if (state.order === "radius") orderWall();
  drawLists();
  reachable.forEach((k, place) => {
    charts[place].value.textContent = `${percent(curve.certified_accuracy[k][t])} %`;
  });
  charts.forEach(chart => chart.move());
  if (state.image !== null) {
    drawDetail();
    detailCharts.forEach(chart => chart.move());
  }
}

// The whole page as the address says.
function arrive() {
  const image = readAddress();
  byId("theta").value = state.step;
  byId("order").value = state.order;
  orderWall();
  update();
  choose(image, false);
}

// ---- begin

const slider = byId("theta");
slider.max = T - 1;
slider.addEventListener("input", () => setStep(+slider.value));
byId("home").addEventListener("click", () => setStep(data.start));
byId("order").addEventListener("change", event => {
  state.order = event.target.value;
  orderWall();
  writeAddress();
});
byId("close").addEventListener("click", closeDetail);
byId("download").addEventListener("click", download);
document.addEventListener("keydown", event => {
  if (event.key === "Escape") {
    tip.hide();
    closeDetail();
  }
});
addEventListener("hashchange", () => {
  if (location.hash.includes("=") || !location.hash) arrive();
});
say("lead-radius", names[lead]);
buildFilters();
buildWall();
buildLists();
buildClasses();
arrive();
Chart.renderAll(charts);
document.documentElement.dataset.ready = "yes";
