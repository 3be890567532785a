// The Advisor tab of TensorBoard. Every text is set as text; reports stay in a sandboxed frame.
const POLL_MS = 700, LIST_MS = 10000;
const client = crypto.getRandomValues(new Uint32Array(4)).join("-");
const make = (tag, attributes = {}, ...inside) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
};
const ask = async (path, values = {}, method = "GET") => {
  const answer = await fetch(`${path}?${new URLSearchParams({ ...values, client })}`, { cache: "no-store", method });
  if (answer.status === 403) return { runs: [], state: "failed", error: await answer.text() };
  if (!answer.ok && answer.status !== 404) throw new Error(`TensorBoard answered ${answer.status}`);
  return answer.json();
};

export async function render() {
  const filter = make("input", { type: "search", placeholder: "Filter runs", "aria-label": "Filter runs" });
  const list = make("ul", { "aria-label": "Runs" }), count = make("footer");
  const worker = make("select"), span = make("select"), base = make("select");
  const save = make("a", { download: "report.html", hidden: "" }, "Save report");
  const news = make("button", { type: "button", hidden: "" }, "Show the newer recording");
  const state = make("div", { id: "state", role: "status" }), frame = make("iframe", {
    sandbox: "allow-scripts allow-downloads", allow: "clipboard-write", referrerpolicy: "no-referrer", title: "Report", hidden: "",
  });
  const labels = [["Worker", worker], ["Recording", span], ["Compare with", base]].map(([text, choice]) => make("label", {}, text, choice));
  document.head.append(make("link", { rel: "stylesheet", href: "tab.css" }));
  document.documentElement.lang = "en";
  document.body.append(
    make("nav", {}, make("header", {}, make("h1", {}, "Runs, newest first"), filter), list, count),
    make("main", {}, make("header", {}, ...labels, news, save), state, frame));

  const isFramed = window.parent !== window.top;  // by a notebook or by any site: reading starts with a click
  let runs = [], chosen = null, asked = 0, shownKey = null, theme = "";
  const address = (key) => `page?${new URLSearchParams({ key, theme })}`;

  const follow = () => {
    const outer = window.parent.document.body;
    const dark = () => {
      theme = outer.classList.contains("dark-mode") ? "dark" : "light";
      document.documentElement.classList.toggle("dark", theme === "dark");
      if (shownKey) frame.src = address(shownKey);
    };
    new MutationObserver(dark).observe(outer, { attributes: true, attributeFilter: ["class"] });
    dark();
  };
  try { follow(); } catch { /* TensorBoard is in a frame of another site */ }

  const when = (time) => new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const options = (choice, pairs, value) => {
    if (choice.dataset.pairs !== String(pairs)) {  // a choice that is open would close
      choice.replaceChildren(...pairs.map(([name, text]) => make("option", { value: name }, text)));
      choice.dataset.pairs = pairs;
    }
    choice.value = pairs.some(([name]) => name === value) ? value : pairs[0][0];
    choice.parentElement.hidden = pairs.length < 2;
  };
  const distinct = (values) => [...new Set(values)];

  const drawChoices = () => {
    const run = runs.find((one) => one.id === chosen);
    if (!run) return;
    const workers = distinct(run.recordings.map(([name]) => name));
    options(worker, workers.length > 1 ? [["*", `all ${workers.length}`], ...workers.map((name) => [name, name])] : [["*", workers[0] ?? ""]], worker.value);
    const spans = distinct(run.recordings.filter(([name]) => ["*", name].includes(worker.value)).map(([, time]) => time)).reverse();
    const newest = run.kind === "log" ? ["", "newest"] : ["", `all ${spans.length}`];
    const all = run.kind === "log" ? [["*", `all ${spans.length}`]] : [];
    options(span, spans.length > 1 ? [newest, ...all, ...spans.map((time) => [time, /^\d{13,19}$/.test(time) ? `${when(+time.slice(0, 13))} (${time})` : time])] : [["", "newest"]], span.value);
    options(base, [["", "no other run"], ...runs.filter((one) => one.id !== chosen).map((one) => [one.id, one.name])], base.value);
  };
  const drawList = () => {
    const wanted = filter.value.toLowerCase();
    const found = runs.filter((run) => run.name.toLowerCase().includes(wanted));
    const single = runs.filter((run) => run.kind !== "all"), times = single.map((run) => (run.is_damaged ? 0 : run.step_ms ?? 0));
    const isAllKnown = single.length > 1 && (runs[0].steps_ms || single.every((run) => run.step_ms || run.headline || run.error));
    const slowest = isAllKnown ? single[times.indexOf(Math.max(...times))] : null;
    const focus = document.activeElement?.dataset?.id;
    list.replaceChildren(...found.map((run) => {
      const step = run.step_ms && run.kind !== "all" ? ` · ${run.step_ms < 10 ? run.step_ms.toPrecision(2) : Math.round(run.step_ms)} ms per step` : "";
      const about = run.kind === "all" ? "One report: which run loses most time" : `${when(run.time_ms)}${run.kind === "capture" ? " · capture" : ""}${step}`;
      const button = make("button", { type: "button", "data-id": run.id, "aria-current": run.id === chosen },
        make("b", {}, run.name), make("small", {}, about), ...(run === slowest ? [make("strong", {}, "Slowest step")] : []),
        ...(run.is_damaged ? [make("small", { class: "failed" }, "Damaged recording")] : []),
        ...(run.headline ? [make("small", {}, run.headline)] : []),
        ...(run.error ? [make("small", { class: "failed" }, "No report: open it to see why")] : []));
      button.addEventListener("click", () => choose(run.id));
      return make("li", {}, button);
    }));
    if (focus) list.querySelector(`[data-id="${focus}"]`)?.focus();
    const number = (some) => some.filter((run) => run.kind !== "all").length;
    count.textContent = `${wanted ? `${number(found)} of ` : ""}${number(runs)} ${number(runs) === 1 ? "run" : "runs"}`;
  };

  const tell = (text, { failed = false, share = null } = {}) => {
    state.replaceChildren(text, ...(share === null ? [] : [make("progress", { max: 1, ...(share ? { value: share } : {}) })]));
    state.classList.toggle("failed", failed);
    state.hidden = false;
    frame.hidden = save.hidden = true;
    shownKey = null;
  };
  const read = async () => {
    const mine = ++asked, begun = Date.now();
    news.hidden = true;
    tell("The report is made …", { share: 0 });
    for (let again = { again: 1 }; mine === asked; again = {}) {
      let answer;
      try {
        answer = await ask("report", { run: chosen, worker: worker.value, span: span.value, base: base.value, ...again }, "POST");
      } catch (error) {
        answer = { state: "queued", lost: String(error) };
      }
      if (mine !== asked) return;
      if (answer.state === "done") {
        frame.src = address(answer.key);
        save.href = `page?${new URLSearchParams({ key: answer.key })}`;
        state.hidden = true;
        frame.hidden = save.hidden = false;
        shownKey = answer.key;
        return update();
      }
      if (answer.state === "failed") {
        tell(answer.error, { failed: true });
        return update();
      }
      const share = answer.total ? answer.read / answer.total : 0, seconds = Math.round((Date.now() - begun) / 1000);
      tell(answer.lost ? `TensorBoard does not answer (${answer.lost}). Waiting for it …`
        : answer.state === "queued" ? "Waiting for another report to end …"
        : !share ? `Starting … ${seconds} s` : share >= 1 ? `Finding causes and fixes … ${seconds} s`
        : `Reading the recordings: ${Math.round(100 * share)}%`, { share: share < 1 ? share : 0 });
      await new Promise((wake) => setTimeout(wake, POLL_MS));
    }
  };
  const choose = (id) => {
    chosen = id;
    worker.value = span.value = base.value = "";
    drawChoices();
    drawList();
    read();
  };
  const update = async () => {
    let refused;
    try {
      ({ runs, error: refused } = await ask("runs"));
    } catch { return; }
    if (refused) return tell(refused, { failed: true });
    const now = runs.find((one) => one.id === chosen);
    drawChoices();
    drawList();
    const newest = runs.find((run) => run.kind !== "all");
    if (!now && newest && isFramed) return tell("Choose a run.");
    if (!now) return newest ? choose(newest.id) : tell("There is no recording in the log folder yet.");
    const isDefault = worker.value === "*" && !span.value && !base.value;
    news.hidden = !(shownKey && isDefault && now.key !== shownKey);
  };

  filter.addEventListener("input", drawList);
  worker.addEventListener("change", () => { drawChoices(); read(); });
  for (const choice of [span, base]) choice.addEventListener("change", read);
  news.addEventListener("click", read);
  window.addEventListener("pagehide", () => navigator.sendBeacon(`leave?${new URLSearchParams({ client })}`));
  tell("Looking for recordings …");
  await update();
  setInterval(() => { if (!document.hidden) update(); }, LIST_MS);
}
