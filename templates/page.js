"use strict";
(() => {
  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const reveal = (element) => {
    for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  };
  const fromHash = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (target) { reveal(target); target.scrollIntoView(); }
  };

  // Tables: one body, sorted by a click on a title, filtered by a text, and not longer than asked for.
  const SHOWN = 12;
  const valueOf = (cell) => {
    const value = cell.dataset.v;
    return value === undefined ? cell.textContent.trim().toLowerCase() : value === "" ? null : Number(value);
  };
  const compare = (one, other) => {
    if (one === null || other === null) return one === other ? 0 : one === null ? 1 : -1;
    return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
  };
  const enhance = (box) => {
    const table = box.querySelector("table"), body = table.tBodies[0], name = box.getAttribute("aria-label");
    const folded = box.nextElementSibling;
    if (folded && folded.matches("details.rest")) {
      body.append(...folded.querySelector("tbody").rows);
      folded.remove();
    }
    const rows = [...body.rows];
    if (rows.length < 2) return;
    let all = false, wanted = "", status = null, more = null;
    const show = () => {
      const found = rows.filter((row) => row.textContent.toLowerCase().includes(wanted));
      const shown = new Set(all ? found : found.slice(0, SHOWN));
      for (const row of rows) row.hidden = !shown.has(row);
      if (status) status.textContent = wanted ? `${found.length} of ${rows.length} rows` : "";
      if (more) {
        more.hidden = found.length <= SHOWN;
        more.textContent = all ? "Show fewer rows" : `Show all ${found.length} rows`;
        more.setAttribute("aria-expanded", all);
      }
    };
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = make("button", head.textContent, { type: "button", class: "sort" });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const first = head.classList.contains("n") ? -1 : 1;
        const way = head.dataset.way ? -head.dataset.way : first;
        for (const each of table.tHead.rows[0].cells) { each.removeAttribute("aria-sort"); delete each.dataset.way; }
        head.dataset.way = way;
        head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
        const keyed = rows.map((row) => [valueOf(row.cells[column]), row]);
        keyed.sort(([a], [b]) => (a === null || b === null ? compare(a, b) : way * compare(a, b)));
        rows.splice(0, rows.length, ...keyed.map(([, row]) => row));
        body.append(...rows);
        show();
      });
    });
    if (rows.length > 8) {
      const bar = make("div", "", { class: "filter" });
      const input = make("input", "", { type: "search", placeholder: "Filter", "aria-label": `Filter: ${name}` });
      status = make("span", "", { class: "about", role: "status" });
      input.addEventListener("input", () => { wanted = input.value.trim().toLowerCase(); show(); });
      bar.append(input, status);
      box.before(bar);
    }
    if (rows.length > SHOWN) {
      more = make("button", "", { type: "button", class: "more" });
      more.addEventListener("click", () => { all = !all; show(); });
      box.after(more);
    }
    show();
  };

  // The trace: lanes of events on a canvas that zooms and pans.
  const time = (ns, span = ns) => {
    if (!ns) return "0";
    const digits = Math.min(15, 3 + Math.max(0, Math.ceil(Math.log10(ns / span))));
    const [unit, name] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    return `${unit === 1 ? Math.round(ns) : Number((ns / unit).toPrecision(digits))} ${name}`;
  };
  const ROW = 15, TITLE = 17, AXIS = 20, MARKS = 4, MOST_ARROWS = 150;
  const drawTrace = (box) => {
    const data = JSON.parse(box.dataset.trace), whole = data.ns, all = [];
    box.removeAttribute("data-trace");
    const labels = [...box.querySelectorAll(".legend li")].map((item) => item.childNodes[1].textContent.trim());
    const swatches = [...box.querySelectorAll(".legend .swatch")];
    let height = 0, missing = 0;
    const lanes = data.lanes.map((lane) => {
      let at = 0;
      const top = height, leftOut = lane.m ? lane.m.split(",").map((digits) => parseInt(digits, 36)) : [];
      const many = leftOut.reduce((sum, part) => sum + part, 0);
      const made = { title: lane.t + (many ? ` · ${many.toLocaleString("en")} shorter events left out, marked below` : ""), top, rows: lane.d, leftOut };
      missing += many;
      height += TITLE + lane.d * ROW + (many ? MARKS : 0) + 4;
      made.events = lane.e ? lane.e.split(";").map((text) => {
        const [gap, length, name, kind, depth, launch] = text.split(",").map((digits) => parseInt(digits, 36));
        at += gap;
        const event = { start: at, end: at + length, name: data.names[name], kind, depth, lane: made, launch, launched: [] };
        all.push(event);
        return event;
      }) : [];
      return made;
    });
    for (const event of all) if (event.launch) { event.launch = all[event.launch - 1]; event.launch.launched.push(event); }
    const arrows = all.filter((event) => event.launch);
    height += AXIS;
    const canvas = make("canvas", "", {
      tabindex: "0", role: "application", "aria-roledescription": "zoomable trace",
      "aria-label": "Trace of a step. Left and right arrows pan, plus and minus zoom, zero shows the whole step, "
        + "up and down choose a lane, n and p name the next and the previous event.",
    });
    canvas.style.height = `${height}px`;
    const out = make("output", "Point at an event to see its name. Ctrl and wheel zoom, dragging pans; or use the buttons or the keys + - ← →.", { class: "pointed" });
    const bar = make("div", "", { class: "buttons" });
    let from = 0, to = whole, picked = null, lit = null, laneAt = 0, queued = false;
    const view = () => canvas.clientWidth || 1;
    const middle = (event) => event.lane.top + TITLE + (event.depth + 0.5) * ROW;
    const draw = () => {
      queued = false;
      const width = view(), ratio = devicePixelRatio || 1, style = getComputedStyle(document.body);
      if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
      if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
      const pen = canvas.getContext("2d"), ink = style.color, scale = width / (to - from);
      const colors = swatches.map((swatch) => getComputedStyle(swatch).borderTopColor);
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      pen.font = `11px ${style.fontFamily}`;
      pen.textBaseline = "middle";
      if (lit) {
        pen.fillStyle = dark ? "#ffffff22" : "#00000014";
        pen.fillRect((lit[0] - from) * scale, 0, Math.max(2, (lit[1] - lit[0]) * scale), height - AXIS);
      }
      for (const lane of lanes) {
        let last = [];
        for (const event of lane.events) {
          if (event.end < from || event.start > to) continue;
          const x = Math.max(0, (event.start - from) * scale), right = Math.min(width, (event.end - from) * scale);
          if (right - x < 1 && last[event.depth] > x) continue;
          last[event.depth] = x + 1;
          const y = lane.top + TITLE + event.depth * ROW, w = Math.max(1, right - x - (right - x > 4 ? 1 : 0));
          pen.fillStyle = colors[event.kind];
          pen.fillRect(x, y, w, ROW - 2);
          if (event === picked) { pen.strokeStyle = ink; pen.lineWidth = 2; pen.strokeRect(x + 1, y + 1, Math.max(1, w - 2), ROW - 4); }
          if (w > 34) {
            pen.fillStyle = textOn(colors[event.kind]);
            const room = Math.floor((w - 6) / 6);
            pen.fillText(event.name.length > room ? `${event.name.slice(0, room - 1)}…` : event.name, x + 3, y + (ROW - 2) / 2, w - 6);
          }
        }
        pen.fillStyle = style.getPropertyValue("--strong-rule");
        const part = whole / lane.leftOut.length, y = lane.top + TITLE + lane.rows * ROW;
        lane.leftOut.forEach((many, place) => { if (many) pen.fillRect((place * part - from) * scale, y, Math.max(1, part * scale), MARKS - 1); });
        pen.fillStyle = ink;
        pen.fillText(lane.title, 2, lane.top + TITLE / 2);
      }
      pen.fillStyle = pen.strokeStyle = ink;
      const shown = arrows.filter((event) => event.start < to && event.launch.end > from);
      for (const event of shown) {
        const isPicked = picked && (event === picked || event.launch === picked);
        if (!isPicked && shown.length > MOST_ARROWS) continue;
        const [x1, y1, x2, y2] = [(event.launch.end - from) * scale, middle(event.launch), (event.start - from) * scale, middle(event)];
        pen.globalAlpha = isPicked ? 1 : 0.35;
        pen.lineWidth = isPicked ? 1.5 : 1;
        pen.beginPath();
        pen.moveTo(x1, y1);
        pen.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2 - 3);
        pen.stroke();
        pen.beginPath();
        pen.moveTo(x2 - 3, y2 - 6); pen.lineTo(x2 + 3, y2 - 6); pen.lineTo(x2, y2);
        pen.fill();
      }
      pen.globalAlpha = 1;
      for (const part of [0, 0.5, 1]) {
        pen.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
        pen.fillText(time(from + part * (to - from), to - from), part * width, height - AXIS / 2);
      }
      pen.textAlign = "left";
    };
    const later = () => { if (!queued) { queued = true; requestAnimationFrame(draw); } };
    const go = (start, end) => {
      const least = Math.min(whole, 100), length = Math.min(whole, Math.max(least, end - start));
      from = Math.min(Math.max(0, start + (end - start - length) / 2), whole - length);
      to = from + length;
      canvas.dataset.from = Math.round(from);
      canvas.dataset.to = Math.round(to);
      later();
    };
    const zoom = (factor, share = 0.5) => {
      const length = (to - from) * factor, at = from + share * (to - from);
      go(at - share * length, at + (1 - share) * length);
    };
    const pan = (share) => { const by = share * (to - from); go(from + Math.max(-from, Math.min(by, whole - to)), to + Math.max(-from, Math.min(by, whole - to))); };
    const name = (event) => {
      picked = event;
      const how = !event ? "" : event.launch ? ` · launched ${time(Math.max(0, event.start - event.launch.start))} before by ${event.launch.name}`
        : event.launched.length ? ` · launches ${event.launched.map((one) => one.name).join(", ")}` : "";
      out.textContent = event
        ? `${event.name} · ${time(event.end - event.start)}, at ${time(event.start)} · ${labels[event.kind]} · ${event.lane.title}${how}` : "";
      later();
    };
    const under = (x, y) => {
      const at = from + (x / view()) * (to - from), slack = (to - from) / view();
      for (const lane of lanes) {
        const row = Math.floor((y - lane.top - TITLE) / ROW);
        if (row < 0 || row >= lane.rows) continue;
        let near = null;
        for (const event of lane.events)
          if (event.depth === row && event.start - slack <= at && at <= event.end + slack) near = event;
        if (near) return near;
      }
      return null;
    };
    const pointers = new Map();
    let spread = 0;
    const gap = () => { const [a, b] = [...pointers.values()]; return Math.abs(a - b) || 1; };
    // The wheel alone scrolls the page. With Ctrl or Command it zooms, and sideways or with Shift it pans.
    canvas.addEventListener("wheel", (event) => {
      const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? view() : 1;
      const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.metaKey && !isSideways) return;
      event.preventDefault();
      if (isSideways) pan(unit * (event.deltaX || event.deltaY) / view());
      else zoom(Math.exp(unit * event.deltaY / 300), event.offsetX / view());
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event.offsetX);
      if (pointers.size === 2) spread = gap();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) { name(under(event.offsetX, event.offsetY)); return; }
      const before = pointers.get(event.pointerId);
      pointers.set(event.pointerId, event.offsetX);
      if (pointers.size === 1) pan((before - event.offsetX) / view());
      else if (pointers.size === 2) { zoom(spread / gap()); spread = gap(); }
    });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => {
      pointers.delete(event.pointerId);
      if (kind === "pointerup") name(under(event.offsetX, event.offsetY));
    });
    const next = (way) => {
      const lane = lanes[laneAt], seen = lane.events.filter((event) => event.end > from && event.start < to);
      const place = seen.indexOf(picked);
      name(seen[place < 0 ? (way > 0 ? 0 : seen.length - 1) : Math.min(seen.length - 1, Math.max(0, place + way))] || null);
    };
    // A file in the Trace Event Format of Chrome.
    const save = () => {
      const events = lanes.map((lane, tid) => ({ ph: "M", name: "thread_name", pid: 0, tid, args: { name: lane.title } }));
      for (const event of all) {
        const tid = lanes.indexOf(event.lane), at = { pid: 0, tid, ts: event.start / 1e3 };
        events.push({ ph: "X", name: event.name, cat: labels[event.kind], dur: (event.end - event.start) / 1e3, ...at });
        if (!event.launch) continue;
        const flow = { name: "launch", cat: "launch", id: events.length };
        events.push({ ph: "s", ...flow, pid: 0, tid: lanes.indexOf(event.launch.lane), ts: event.launch.start / 1e3 });
        events.push({ ph: "f", bp: "e", ...flow, ...at });
      }
      const content = new Blob([JSON.stringify({ traceEvents: events, displayTimeUnit: "ms" })], { type: "application/json" });
      const link = make("a", "", { href: URL.createObjectURL(content), download: `step-${data.step}.json` });
      link.click();
      URL.revokeObjectURL(link.href);
      const rest = missing ? ` Without ${missing.toLocaleString("en")} short events; the option --save-steps of the report writes all.` : "";
      out.textContent = `Saved as ${link.download}: open it at ui.perfetto.dev.${rest}`;
    };
    const keys = {
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6),
      0: () => go(0, whole), n: () => next(1), p: () => next(-1),
      ArrowUp: () => { laneAt = Math.max(0, laneAt - 1); picked = null; next(1); },
      ArrowDown: () => { laneAt = Math.min(lanes.length - 1, laneAt + 1); picked = null; next(1); },
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
      event.preventDefault();
      keys[event.key]();
    });
    for (const [text, act] of [["Zoom in", () => zoom(0.5)], ["Zoom out", () => zoom(2)], ["Earlier", () => pan(-0.5)], ["Later", () => pan(0.5)], ["Whole step", () => go(0, whole)], ["Save for Perfetto", save]]) {
      const button = make("button", text, { type: "button" });
      button.addEventListener("click", act);
      bar.append(button);
    }
    box.querySelector("svg").before(bar, canvas, out);
    box.showRange = (start, end) => { lit = [start, end]; const room = Math.max(end - start, whole / 1e4); go(start - room, end + room); canvas.focus({ preventScroll: true }); };
    new ResizeObserver(later).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
    go(0, whole);
  };
  const textOn = (color) => {
    const [r, g, b] = color.match(/[\d.]+/g).map(Number).map((part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#10131a" : "#ffffff";
  };

  const copyable = (pre) => {
    const code = pre.querySelector("code"), button = make("button", "Copy", { type: "button", class: "copy" });
    const say = (text) => { button.textContent = text; setTimeout(() => { button.textContent = "Copy"; }, 2000); };
    button.addEventListener("click", () => Promise.resolve().then(() => navigator.clipboard.writeText(pre.dataset.copy || code.textContent))
      .then(() => say("Copied"), () => { getSelection().selectAllChildren(code); say("Selected"); }));
    pre.append(button);
  };

  document.querySelectorAll("pre:not(.quote)").forEach(copyable);
  document.querySelectorAll(".table.sortable").forEach(enhance);
  document.querySelectorAll(".trace[data-trace]").forEach(drawTrace);
  document.querySelectorAll("a[data-from]").forEach((link) => link.addEventListener("click", () => {
    const target = document.getElementById(link.hash.slice(1));
    reveal(target);
    const box = target.querySelector(".trace");
    if (box && box.showRange) setTimeout(() => box.showRange(Number(link.dataset.from), Number(link.dataset.to)));
  }));
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.why:not([open])")];
    opened.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((each) => { each.open = false; }));
  addEventListener("hashchange", fromHash);
  fromHash();
  document.documentElement.classList.add("live");
})();
