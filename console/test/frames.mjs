// Measures the fleet view in a browser: what the work of a frame costs, and how evenly frames come, while a person does something.
import { setTimeout as sleep } from 'node:timers/promises';

// probe runs in the page before its own scripts. It notes when the map is first painted, what the work of each frame costs that paints it or
// takes more than a millisecond, such as one that only lays out, and the time between all frames. Callbacks of one frame count together.
export function probe() {
  const seen = { painted: 0, work: [], interval: [] };
  window.benchmark = seen;
  let paints = 0; // each begins with a clearRect
  const clear = CanvasRenderingContext2D.prototype.clearRect;
  CanvasRenderingContext2D.prototype.clearRect = function (...rect) {
    paints++;
    return clear.apply(this, rect);
  };
  const request = window.requestAnimationFrame.bind(window);
  let frame = { time: -1, took: 0, counted: false };
  window.requestAnimationFrame = (callback) => request((time) => {
    if (time !== frame.time) frame = { time, took: 0, counted: false };
    const [began, before] = [performance.now(), paints];
    callback(time);
    frame.took += performance.now() - began;
    if (paints > before) seen.painted ||= performance.now();
    if (frame.counted) seen.work[seen.work.length - 1] = frame.took;
    else if (paints > before || frame.took > 1) {
      frame.counted = true;
      seen.work.push(frame.took);
    }
  });
  let last = 0;
  const tick = (time) => {
    if (last) seen.interval.push(time - last);
    last = time;
    request(tick);
  };
  request(tick);
}

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;

export const ms = (list) => {
  const sorted = list.toSorted((a, b) => a - b);
  return `${at(sorted, 0.5).toFixed(1)} ms median, ${at(sorted, 0.95).toFixed(1)} ms p95, ${at(sorted, 1).toFixed(0)} ms most (${sorted.length})`;
};

// pace is the time between two events of a device, in ms: mice report 60 to 125 times a second.
const pace = 10;

// acts are what a person does with the map. Each lasts for so many seconds.
export async function acts(page) {
  const { x, y, width, height } = await page.locator('canvas').boundingBox();
  const canvas = page.locator('canvas');
  const circle = (i, size) => [x + width / 2 + size * (width / 2 - 40) * Math.sin(i / 20), y + height / 2 + size * (height / 2 - 60) * Math.cos(i / 30)];
  const during = async (seconds, wait, each) => {
    const end = performance.now() + seconds * 1000;
    for (let i = 0; performance.now() < end; i++) {
      await each(i);
      await sleep(wait);
    }
  };
  // zoomed presses a key so many times, from all nodes.
  const zoomed = async (times) => {
    await canvas.focus();
    await page.keyboard.press('0');
    for (let i = 0; i < times; i++) await page.keyboard.press('+');
  };
  const drag = (times) => async (seconds) => {
    await zoomed(times);
    await page.mouse.move(...circle(0, 0.6));
    await page.mouse.down();
    await during(seconds, pace, (i) => page.mouse.move(...circle(i, 0.6)));
    await page.mouse.up();
  };
  return {
    'dragging, zoomed once': drag(1),
    'dragging, zoomed four times': drag(4),
    'zooming by wheel': async (seconds) => {
      await zoomed(0);
      await page.mouse.move(...circle(7, 0.3));
      await page.keyboard.down('Control');
      await during(seconds, pace, (i) => page.mouse.wheel(0, i % 120 < 60 ? -14 : 14));
      await page.keyboard.up('Control');
    },
    'moving the pointer': async (seconds) => {
      await zoomed(0);
      await during(seconds, pace, (i) => page.mouse.move(...circle(i, 0.9)));
    },
    'changing the color': async (seconds) => {
      await zoomed(0);
      await during(seconds, 10 * pace, (i) => page.keyboard.press(String(1 + (i % 5))));
      await page.keyboard.press('1');
    },
    'changing the groups': async (seconds) => {
      await zoomed(0);
      const menu = page.getByLabel('Group by');
      await during(seconds, 30 * pace, (i) => menu.selectOption(['zone', 'type', 'pool'][i % 3]));
      await menu.selectOption('pool');
    },
  };
}
