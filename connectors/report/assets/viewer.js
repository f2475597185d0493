// Three linked slices of every embedded volume. Click or drag in a slice, or move its slider. Without this
// script the page shows its drawn slices only.
"use strict";
(() => {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const numbers = (text) => text.split(" ").map(Number);
  const planes = [
    { fixed: 0, across: 1, up: 2, name: "x", sides: "PA" },
    { fixed: 1, across: 0, up: 2, name: "y", sides: "LR" },
    { fixed: 2, across: 0, up: 1, name: "z", sides: "LR" },
  ];
  const element = (name, parent) => parent.appendChild(document.createElement(name));

  const start = (box) => {
    const data = box.dataset;
    const shape = numbers(data.shape), zooms = numbers(data.zooms), at = numbers(data.at);
    const affine = numbers(data.affine), origin = numbers(data.origin);
    const grey = bytes(data.grey), palette = bytes(data.palette);
    const colours = data.colours ? bytes(data.colours) : null;
    const mirror = "mirror" in data, low = Number(data.low), high = Number(data.high);
    const index = (v) => v[0] + shape[0] * (v[1] + shape[1] * v[2]);
    const across = (plane, px) => (mirror && plane.across === 0 ? shape[0] - 1 - px : px);
    const views = element("div", box);
    views.className = "views";
    const drawers = planes.map((plane) => {
      const [w, h] = [shape[plane.across], shape[plane.up]];
      const column = element("div", views);
      column.style.flex = `${w * zooms[plane.across]} 1 0`;
      const sides = element("div", column);
      sides.className = "sides";
      const letters = [...plane.sides];
      if (mirror && plane.across === 0) letters.reverse();
      letters.forEach((letter) => { element("span", sides).textContent = letter; });
      const canvas = element("canvas", column);
      canvas.width = w;
      canvas.height = h;
      canvas.style.aspectRatio = `${w * zooms[plane.across]} / ${h * zooms[plane.up]}`;
      const label = element("label", column);
      label.append(plane.name);
      const slider = element("input", label);
      Object.assign(slider, { type: "range", min: 0, max: shape[plane.fixed] - 1, value: at[plane.fixed] });
      slider.addEventListener("input", () => { at[plane.fixed] = Number(slider.value); draw(); });
      const context = canvas.getContext("2d"), image = context.createImageData(w, h);
      const pick = (event) => {
        if (!event.buttons) return;
        const area = canvas.getBoundingClientRect();
        const inside = (part, n) => Math.min(n - 1, Math.max(0, Math.floor(part * n)));
        at[plane.across] = across(plane, inside((event.clientX - area.left) / area.width, w));
        at[plane.up] = h - 1 - inside((event.clientY - area.top) / area.height, h);
        draw();
      };
      canvas.addEventListener("pointerdown", pick);
      canvas.addEventListener("pointermove", pick);
      return () => {
        const v = [0, 0, 0];
        v[plane.fixed] = at[plane.fixed];
        for (let y = 0, p = 0; y < h; y++) {
          v[plane.up] = h - 1 - y;
          for (let x = 0; x < w; x++, p += 4) {
            v[plane.across] = across(plane, x);
            const i = index(v), level = colours ? colours[i] : 0;
            for (let c = 0; c < 3; c++) image.data[p + c] = level ? palette[3 * (level - 1) + c] : grey[i];
            const hair = v[plane.across] === at[plane.across] || v[plane.up] === at[plane.up];
            if (hair) for (let c = 0; c < 3; c++) image.data[p + c] = 0.75 * image.data[p + c] + 50;
            image.data[p + 3] = 255;
          }
        }
        context.putImageData(image, 0, 0);
        slider.value = at[plane.fixed];
      };
    });
    const output = element("output", box);
    const draw = () => {
      drawers.forEach((d) => d());
      const mm = [0, 1, 2].map((r) => origin[r] + [0, 1, 2].reduce((s, c) => s + affine[3 * r + c] * at[c], 0));
      const i = index(at);
      const part = colours ? (colours[i] ? (colours[i] - 1) / 254 : null) : grey[i] / 255;
      const value = part === null ? "no value drawn" : `value ≈ ${Number((low + part * (high - low)).toPrecision(3))} ${data.unit}`;
      output.textContent = `x, y, z = ${mm.map((m) => m.toFixed(1)).join(", ")} mm · ${value} · ` +
        `${mirror ? "radiological" : "neurological"} · click or drag to move`;
    };
    box.hidden = false;
    draw();
  };
  // The first volumes are unpacked at once, the others when they come near the window, so that a page of many
  // maps opens quickly.
  const boxes = [...document.querySelectorAll(".viewer")];
  const later = "IntersectionObserver" in window ? boxes.splice(4) : [];
  boxes.forEach(start);
  if (!later.length) return;
  const watcher = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting) { watcher.unobserve(entry.target); start(entry.target); }
  }), { rootMargin: "800px" });
  later.forEach((box) => { box.hidden = false; watcher.observe(box); });
})();
