// The figures that follow theta.

// ---- the trade-off

const other = data.other_rule; // the curve of the other rule from the same draws, or null
const everyNac = [
  ...curve.nac,
  ...bands.nac.flat(),
  data.core.nac,
  data.alone.nac,
  ...data.baseline.map(b => b.nac),
  ...data.entropy_selection.map(e => e.nac),
  ...(other?.nac ?? []),
];
const [nacLow, nacHigh] = extent(everyNac).map(v => Math.min(1, Math.max(0, v)));
const nacAxis = percentAxis(nacLow, nacHigh, "natural accuracy, %");
const reachable = data.shown_radii; // places in `radii`
const certifiedHigh =
  Math.max(
    0.05,
    ...reachable.flatMap(k => [
      ...bands.certified_accuracy[k][1],
      data.alone.certified_accuracy[k],
      ...data.baseline.map(b => b.certified_accuracy[k]),
      ...data.entropy_selection.map(e => e.certified_accuracy[k]),
      ...(other?.certified_accuracy[k] ?? []),
    ]),
  ) * 1.05;

// ACES between its two networks, and what it is compared with, with `values` (one for each theta) upwards.
function tradeOff(host, {values, interval, axis, alone, baseline, otherSelection, otherRule, ceiling, name, format}) {
  const natural = nac => `natural accuracy ${percent(nac)} %`;
  const said = value => `${name.toLowerCase()} ${format(value)}`;
  return add(charts, host, {
    x: nacAxis,
    y: axis,
    draw(chart) {
      if (ceiling !== undefined) {
        chart.add("line", {
          x1: chart.margin.left,
          x2: chart.width - chart.margin.right,
          y1: chart.Y(ceiling),
          y2: chart.Y(ceiling),
          stroke: COLOUR.soft,
          "stroke-dasharray": "6 4",
        });
        chart.text(chart.margin.left + 6, chart.Y(ceiling) + 15, `ceiling ${downwards(ceiling)}`);
      }
      chart.band(curve.nac, interval[0], interval[1], COLOUR.aces);
      if (data.baseline.length) {
        chart.line(
          data.baseline.map(b => b.nac),
          baseline,
          COLOUR.baseline,
          {"stroke-dasharray": "1.5 4", "stroke-linecap": "round"},
        );
        data.baseline.forEach((b, k) => chart.mark("diamond", b.nac, baseline[k], COLOUR.baseline, 4));
      }
      if (otherSelection.length)
        chart.line(
          data.entropy_selection.map(e => e.nac),
          otherSelection,
          COLOUR.aces,
          {"stroke-width": 1.4, "stroke-dasharray": "5 4"},
        );
      if (other)
        chart.line(other.nac, otherRule, COLOUR.soft, {
          class: "other-rule",
          "stroke-width": 1.6,
          "stroke-dasharray": "8 3",
        });
      chart.line(curve.nac, values, COLOUR.aces, {class: "this-rule", "stroke-width": 2.4});
      chart.mark("square", data.core.nac, 0, COLOUR.core, 6);
      chart.mark("triangle", data.alone.nac, alone, COLOUR.certify, 6);
    },
    move(chart) {
      const t = state.step;
      chart.point(
        curve.nac[t],
        values[t],
        COLOUR.aces,
        [bands.nac[0][t], bands.nac[1][t]],
        [interval[0][t], interval[1][t]],
      );
      return (
        `${name} over natural accuracy. At θ = ${theta()}: ${format(values[t])} at natural accuracy ${percent(curve.nac[t])} %. ` +
        `Core network: 0 at ${percent(data.core.nac)} %. Certification network alone: ${format(alone)} at ${percent(data.alone.nac)} %.`
      );
    },
    pick: (chart, x, y) => setStep(nearest(chart, curve.nac, values, x, y, state.step)),
    points: () => [
      {
        xs: curve.nac,
        ys: values,
        start: state.step,
        pick: setStep,
        words: t => [
          `ACES, ${data.rule_words}, θ = ${theta(t)}`,
          `${said(values[t])} (${format(interval[0][t])} to ${format(interval[1][t])})`,
          natural(curve.nac[t]),
        ],
      },
      {
        xs: other?.nac ?? [],
        ys: otherRule ?? [],
        words: t => [`ACES, ${other.words}, θ = ${other.thetas[t]}`, said(otherRule[t]), natural(other.nac[t])],
      },
      {
        xs: [data.core.nac, data.alone.nac],
        ys: [0, alone],
        words: k =>
          k
            ? ["certification network alone", said(alone), natural(data.alone.nac)]
            : ["core network alone", "certifies nothing", natural(data.core.nac)],
      },
      {
        xs: data.baseline.map(b => b.nac),
        ys: baseline,
        words: k => [
          `certification network at σ = ${data.baseline[k].sigma}`,
          said(baseline[k]),
          natural(data.baseline[k].nac),
        ],
      },
    ],
  });
}

for (const k of reachable) {
  const value = element("b"),
    host = element("div", {class: "chart"});
  byId("panels").append(element("div", {class: "panel"}, element("h3", {}, `r = ${names[k]}`, value), host));
  tradeOff(host, {
    values: curve.certified_accuracy[k],
    interval: bands.certified_accuracy[k],
    alone: data.alone.certified_accuracy[k],
    baseline: data.baseline.map(b => b.certified_accuracy[k]),
    otherSelection: data.entropy_selection.map(e => e.certified_accuracy[k]),
    otherRule: other?.certified_accuracy[k],
    axis: percentAxis(0, certifiedHigh, "certified accuracy, %"),
    name: `Certified accuracy at radius ${names[k]}`,
    format: v => `${percent(v)} %`,
  }).value = value;
}
const without = names.filter((r, k) => radii[k] > 0 && radii[k] <= data.ceiling && !reachable.includes(k)),
  beyond = names.filter((r, k) => radii[k] > data.ceiling);
byId("unreachable").textContent = [
  without.length ? `No figure for r = ${without.join(", ")}: next to nothing is certified there.` : "",
  beyond.length
    ? `No figure for r = ${beyond.join(", ")}: with n = ${whole(data.n)} draws no radius can exceed ${downwards(data.ceiling)}.`
    : "",
].join(" ").trim();
byId("unreachable").hidden = !byId("unreachable").textContent;

tradeOff(byId("acr-chart"), {
  values: curve.acr,
  interval: bands.acr,
  alone: data.alone.acr,
  baseline: data.baseline.map(b => b.acr),
  otherSelection: data.entropy_selection.map(e => e.acr),
  otherRule: other?.acr,
  ceiling: data.ceiling,
  axis: {
    low: 0,
    high: Math.max(data.ceiling, ...data.baseline.map(b => b.acr)) * 1.06,
    label: "average certified radius",
    format: v => +v.toFixed(3),
  },
  name: "Average certified radius",
  format: v => downwards(v),
});

add(charts, "profile-chart", {
  x: {low: 0, high: data.profile.radius.at(-1), label: "radius r", format: v => +v.toFixed(3)},
  y: percentAxis(0, 1, "certified accuracy, %"),
  draw: chart =>
    chart.line(data.profile.radius, data.profile.alone, COLOUR.certify, {
      "stroke-dasharray": "6 3",
      "stroke-width": 1.6,
    }),
  move(chart) {
    const row = perTheta.profile(state.step),
      {radius} = data.profile;
    chart.band(
      radius,
      radius.map(() => 0),
      row,
      COLOUR.aces,
    );
    chart.line(radius, row, COLOUR.aces, {"stroke-width": 2.4});
    const right = chart.width - chart.margin.right,
      name = (y, words, colour) => chart.text(right, y, words, {style: `fill:${colour}`, "text-anchor": "end"});
    name(chart.margin.top + 8, `ACES, area ${downwards(curve.acr[state.step])}`, "var(--aces)").classList.add("bold");
    name(chart.margin.top + 26, `certification network alone, ${downwards(data.alone.acr)}`, "var(--right)");
    return `Certified accuracy over the radius at θ = ${theta()}: ${percent(row[0])} % at r = 0, ${percent(row.at(-1))} % at the ceiling of ${downwards(data.ceiling)}.`;
  },
  points: () =>
    [
      ["ACES", perTheta.profile(state.step)],
      ["certification network alone", data.profile.alone],
    ].map(([who, ys]) => ({
      xs: data.profile.radius,
      ys,
      words: k => [
        who,
        `${percent(ys[k])} % are right and certified`,
        `at radius ${downwards(data.profile.radius[k])}`,
      ],
    })),
});

function legend(id, entries) {
  byId(id).replaceChildren(...entries.map(entry => element("li", {}, entry.icon, ...entry.words)));
}
legend("legend", [
  {icon: icon(null, COLOUR.aces, "30 0"), words: [`ACES, ${data.rule_words}, one point for each θ`]},
  ...(other ? [{icon: icon(null, COLOUR.soft, "8 3"), words: [`ACES, ${other.words}, from the same draws`]}] : []),
  {icon: icon("square", COLOUR.core), words: [`core network, ${data.core.name}`]},
  {icon: icon("triangle", COLOUR.certify), words: [`certification network alone, ${data.alone.name}`]},
  ...(data.baseline.length
    ? [{icon: icon("diamond", COLOUR.baseline, "1.5 4"), words: ["the same network at other noise levels"]}]
    : []),
  ...(data.entropy_selection.length
    ? [{icon: icon(null, COLOUR.aces, "5 4"), words: ["ACES selecting by entropy"]}]
    : []),
]);

// ---- the calibration: how much natural accuracy each threshold cost on other images

if (data.calibration) {
  const {thetas: tested, losses, loss, confidence, images: used, theta: chosen} = data.calibration;
  const points = value => (100 * value).toFixed(1);
  byId("calibration").hidden = false;
  add(charts, "calibration-chart", {
    x: {low: 0, high: Math.max(0.05, 1.05 * tested.at(-1)), label: "threshold θ", format: v => +v.toFixed(2)},
    y: {...percentAxis(...calibrationExtent(loss, losses)), label: "loss of natural accuracy, points"},
    draw(chart) {
      const across = {x1: chart.margin.left, x2: chart.width - chart.margin.right};
      chart.add("line", {
        ...across,
        y1: chart.Y(loss),
        y2: chart.Y(loss),
        stroke: COLOUR.wrong,
        "stroke-dasharray": "6 4",
      });
      chart.text(chart.margin.left + 6, chart.Y(loss) - 6, `budget: ${points(loss)} points`);
      chart.line(tested, losses, COLOUR.aces);
    },
    move(chart) {
      chart.rule(chosen, `chosen: θ = ${chosen}`);
      return `Loss of natural accuracy on ${whole(used)} calibration images over θ, up to the first threshold that could not be shown to keep the budget of ${points(loss)} points with ${percent(confidence, 0)} % confidence. Chosen: θ = ${chosen}.`;
    },
    points: () => [
      {
        xs: tested,
        ys: losses,
        words: k => [
          `θ = ${tested[k]}`,
          `${points(losses[k])} points lost on the calibration images`,
          tested[k] <= chosen ? "shown to keep the budget" : "not shown to keep the budget",
        ],
      },
    ],
  });
}

// ---- attacks, where `aces attack` was run

if (data.attack) {
  const {radius, certified_accuracy: certified, empirical_accuracy: empirical} = data.attack;
  const series = [
    ["no attack found", empirical, COLOUR.core],
    ["certified", certified, COLOUR.aces],
  ];
  // A value holds from its radius to the next.
  const late = radius.flatMap((r, k) => (k ? [r, r] : [r]));
  const stepped = values => values.flatMap((v, k) => (k + 1 < values.length ? [v, v] : [v]));
  add(charts, "attack-chart", {
    x: {low: 0, high: radius.at(-1), label: "size of the attack, l2", format: v => +v.toFixed(2)},
    y: percentAxis(0, Math.max(0.05, 1.25 * Math.max(...empirical)), "right answers, %"),
    draw(chart) {
      series.forEach(([words, values, colour], k) => {
        chart.line(late, stepped(values), colour, {"stroke-width": 2.2, class: "attacked"});
        const x = chart.width - chart.margin.right - 130,
          y = chart.margin.top + 8 + 18 * k;
        chart.add("line", {x1: x, x2: x + 24, y1: y - 4, y2: y - 4, stroke: colour, "stroke-width": 2.2});
        chart.text(x + 30, y, words);
      });
    },
    move: () =>
      `Right answers over the size of the attack: certified ${percent(certified[0])} % at 0, and ${percent(empirical.at(-1))} % that no attack of size ${downwards(radius.at(-1))} changed.`,
    points: () =>
      series.map(([words, values]) => ({
        xs: radius,
        ys: values,
        words: k => [words, `${percent(values[k])} % right answers`, `at size ${downwards(radius[k])}`],
      })),
  });
}

// ---- the selection

const binEdges = data.correctness.certified.map((_, k, every) => k / every.length);
const tallest = Math.max(...data.correctness.certified.map((c, k) => c + data.correctness.other[k]));
add(charts, "correctness-chart", {
  x: {low: 0, high: 1, label: `median ${data.score}`, format: v => +v.toFixed(2)},
  y: {low: 0, high: tallest * 1.12, label: "images", format: v => Math.round(v)},
  pick: (chart, x) => setStep(stepAt(chart, x)),
  draw(chart) {
    const {certified, other} = data.correctness,
      width = chart.X(binEdges[1]) - chart.X(0) - 1;
    binEdges.forEach((edge, k) => {
      const base = {x: chart.X(edge) + 0.5, width};
      chart.add("rect", {
        ...base,
        y: chart.Y(certified[k]),
        height: chart.Y(0) - chart.Y(certified[k]),
        fill: COLOUR.certify,
      });
      chart.add("rect", {
        ...base,
        y: chart.Y(certified[k] + other[k]),
        height: chart.Y(0) - chart.Y(other[k]),
        fill: COLOUR.quiet,
      });
    });
    const key = chart.width - chart.margin.right;
    chart.text(key, chart.margin.top + 22, "certified correctly", {
      class: "bold",
      "text-anchor": "end",
      style: "fill:var(--right)",
    });
    chart.text(key, chart.margin.top + 38, "all others", {"text-anchor": "end"});
  },
  move(chart) {
    chart.rule(thetas[state.step], `θ = ${theta()}`);
    const {certified, other, radius} = data.correctness;
    return `Histogram of the median ${data.score}. Certified correctly at r = ${radius}: ${half(certified)}. All others: ${half(other)}.`;
  },
  points: () => {
    const {certified, other} = data.correctness,
      width = 1 / binEdges.length;
    return [
      {
        xs: binEdges.map(edge => edge + width / 2),
        ys: certified.map((count, k) => count + other[k]),
        words: k => [
          `median ${data.score} ${binEdges[k].toFixed(2)} to ${(binEdges[k] + width).toFixed(2)}`,
          `${certified[k]} certified correctly`,
          `${other[k]} others`,
        ],
      },
    ];
  },
});

const {percentile} = data.selection_radius,
  faint = [0.1, 0.3, 0.5, 0.7, 0.9].map(v => thetas.findIndex(theta => theta >= v - 1e-9));
add(charts, "selection-chart", {
  x: {low: 0, high: 100, label: "percentile of images", format: v => v},
  y: {
    low: -data.selection_radius.ceiling * 1.05,
    high: data.selection_radius.ceiling * 1.05,
    label: "selection radius",
    format: v => +v.toFixed(2),
  },
  draw: chart =>
    faint.forEach(t => chart.line(percentile, perTheta.selectionRadius(t), COLOUR.quiet, {"stroke-width": 1.2})),
  move(chart) {
    chart.line(percentile, perTheta.selectionRadius(state.step), COLOUR.aces, {"stroke-width": 2.4});
    chart.text(chart.width - chart.margin.right, chart.Y(0) + 16, `θ = ${theta()}`, {
      class: "strong",
      "text-anchor": "end",
    });
    chart.text(chart.margin.left + 6, chart.margin.top + 6, "certification network ↑");
    chart.text(chart.width - chart.margin.right, chart.Y(chart.spec.y.low) - 8, "core network ↓", {
      "text-anchor": "end",
    });
    return `Radius of the selection over the percentile of images, at θ = ${theta()}.`;
  },
  points: () => {
    const ys = perTheta.selectionRadius(state.step);
    const whom = radius => (radius > 0 ? "certification network" : radius < 0 ? "core network" : "neither network");
    return [
      {
        xs: percentile,
        ys,
        start: 50,
        words: k => [
          `percentile ${percentile[k]}, θ = ${theta()}`,
          `${whom(ys[k])} provably selected`,
          `within ${downwards(Math.abs(ys[k]))}`,
        ],
      },
    ];
  },
});

add(charts, "ecdf-chart", {
  x: {low: 0.5, high: 1, label: "share of draws p", format: v => +v.toFixed(2)},
  y: percentAxis(0, 1, "images with a share of at most p, %"),
  draw: chart => chart.line(data.ecdf.share, data.ecdf.p_class, COLOUR.certify, {"stroke-dasharray": "6 3"}),
  move(chart) {
    chart.line(data.ecdf.share, perTheta.ecdf(state.step), COLOUR.aces, {"stroke-width": 2.4});
    const label = (y, index, words, colour, line) => {
      chart.add("line", {
        x1: chart.X(0.515),
        x2: chart.X(0.515) + 24,
        y1: y - 4,
        y2: y - 4,
        stroke: colour,
        "stroke-width": 2.4,
        "stroke-dasharray": line,
      });
      chart
        .text(chart.X(0.515) + 30, y, "")
        .append(
          element("tspan", {"font-style": "italic"}, "p"),
          element("tspan", {"font-size": 9, dy: 3}, index),
          element("tspan", {dy: -3}, words),
        );
    };
    label(chart.margin.top + 12, "A", " of the class", COLOUR.certify, "6 3");
    const where = chart.width < 260 ? "" : ` at θ = ${theta()}`;
    label(chart.margin.top + 30, "S", ` of the selection${where}`, COLOUR.aces, "24 0");
    return `Empirical distributions of the class and selection probabilities at θ = ${theta()}.`;
  },
  points: () =>
    [
      [`p of the selection at θ = ${theta()}`, perTheta.ecdf(state.step)],
      ["p of the class", data.ecdf.p_class],
    ].map(([what, ys]) => ({
      xs: data.ecdf.share,
      ys,
      words: k => [what, `at most ${data.ecdf.share[k].toFixed(3)}`, `for ${percent(ys[k])} % of the images`],
    })),
});

// From 0, unless a threshold gained accuracy.
function calibrationExtent(loss, losses) {
  const [low, high] = extent([0, loss, ...losses], 0.12);
  return [losses.some(value => value < 0) ? low : 0, high];
}

// How many images a histogram over [0, 1] holds, and where the lower half of them ends.
function half(histogram) {
  const total = histogram.reduce((a, b) => a + b, 0);
  let below = 0;
  const bin = histogram.findIndex(count => (below += count) >= total / 2);
  return total ? `${total} images, half of them at ${((bin + 1) / histogram.length).toFixed(2)} or below` : "no image";
}

// The step whose theta is nearest to where the pointer is on an axis from 0 to 1.
function stepAt(chart, x) {
  return stepOf((x - chart.X(0)) / (chart.X(1) - chart.X(0)));
}

function stepOf(value) {
  let best = 0;
  thetas.forEach((theta, t) => {
    if (Math.abs(theta - value) < Math.abs(thetas[best] - value)) best = t;
  });
  return best;
}
