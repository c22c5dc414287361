import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const css = readFileSync(new URL('../../src/tokens.css', import.meta.url), 'utf8');
const [light, dark] = css.split(':root[data-theme=dark]').map((part) =>
  Object.fromEntries([...part.matchAll(/--([\w-]+): (#[0-9a-f]{6})/g)].map((m) => [m[1], m[2]])));
const themes = { light, dark };

const linear = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
  .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
const luminance = (hex) => linear(hex).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);

function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

const texts = {
  text: ['bg', 'surface', 'sunken', 'hover', 'accent-weak', 'add', 'del'], text2: ['bg', 'surface', 'sunken', 'hover', 'accent-weak'],
  text3: ['bg', 'surface', 'sunken', 'hover'], 'accent-text': ['bg', 'surface', 'accent-weak'], ok: ['surface', 'bg'], warn: ['surface', 'bg'],
  bad: ['surface', 'bg'],
};

for (const [theme, t] of Object.entries(themes)) {
  test(`text reads well in the ${theme} theme`, () => {
    for (const [text, backgrounds] of Object.entries(texts)) {
      for (const background of backgrounds) {
        const ratio = contrast(t[text], t[background]);
        assert.ok(ratio >= 4.5, `--${text} on --${background}: ${ratio.toFixed(2)}`);
      }
    }
  });

  test(`the focus ring stands out in the ${theme} theme`, () => {
    for (const background of ['bg', 'surface', 'sunken']) assert.ok(contrast(t.accent, t[background]) >= 3, background);
  });
}

// The kinds of color blindness, as matrices over linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
const visions = {
  none: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

// lab is a color in CIELAB, as a kind of vision sees it.
function lab(hex, vision) {
  const rgb = linear(hex);
  const [r, g, b] = visions[vision].map((row) => Math.min(1, Math.max(0, row.reduce((sum, v, i) => sum + v * rgb[i], 0))));
  const xyz = [
    (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047, 0.2126 * r + 0.7152 * g + 0.0722 * b, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
  ].map((v) => (v > 0.008856 ? Math.cbrt(v) : 7.787 * v + 16 / 116));
  return [116 * xyz[1] - 16, 500 * (xyz[0] - xyz[1]), 200 * (xyz[1] - xyz[2])];
}

const distance = (a, b, vision) => Math.hypot(...lab(a, vision).map((v, i) => v - lab(b, vision)[i]));

// Steady is a ramp of grays, and cordoned a gray with an outline and a badge.
const states = ['inflight', 'planned', 'draining', 'drifted', 'blocked', 'notready'];

for (const vision of Object.keys(visions)) {
  test(`states differ in color for ${vision === 'none' ? 'full color vision' : vision}`, () => {
    for (const [theme, t] of Object.entries(themes)) {
      for (const [i, a] of states.entries()) {
        for (const b of states.slice(i + 1)) {
          const d = distance(t[`s-${a}`], t[`s-${b}`], vision);
          assert.ok(d >= 12, `${theme}: ${a} and ${b} are ${d.toFixed(1)} apart`);
        }
      }
    }
  });
}
