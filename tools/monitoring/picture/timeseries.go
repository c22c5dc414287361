package picture

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
)

// legendLines is how many lines of names a panel has at most.
const legendLines = 2

// plot maps times and values to pixels.
type plot struct {
	box
	window    Window
	low, high float64
	step      time.Duration
}

func (p plot) at(ms int64, v float64) (x, y float64) {
	return p.x + p.window.share(ms)*p.w, p.y + p.h - (v-p.low)/(p.high-p.low)*p.h
}

// drawTimeSeries draws axes, series and their names.
func drawTimeSeries(ctx context.Context, c *canvas, p grafana.Panel, in box, w Window) error {
	step := w.step(p, in.w-50)
	found, err := lines(ctx, p, w, step)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		drawEmpty(c, p, in)
		return nil
	}
	if p.Bars {
		stack(found, step, true)
	} else if p.Stacked {
		stack(found, step, false)
	}
	in.h -= drawLegend(c, found, in) + 18
	low, high := bounds(p, found)
	marks := ticks(low, high, p.Unit, 4)
	low, high = min(low, marks[0]), marks[len(marks)-1]
	labels := 0.0
	for _, v := range marks {
		labels = max(labels, width(format(v, p.Unit, nil), 11))
	}
	area := plot{in.inner(4, 4, 0, labels+8), w, low, high, step}
	drawAxes(c, area, marks, p.Unit)
	for i := len(found) - 1; i >= 0; i-- { // the upper ones of a stack first
		switch {
		case p.Bars:
			drawBarSeries(c, area, found, i)
		case p.Stacked:
			drawArea(c, area, found, i)
		default:
			drawLine(c, area, found[i])
		}
	}
	return nil
}

// stack adds to each line those before it, at each time. Times that a line lacks count as 0.
//
// Bars that are all 0 are left out, so that the names are those of events.
func stack(found []line, step time.Duration, bars bool) {
	sums := map[int64]float64{}
	for i := range found {
		own := map[int64]float64{}
		for _, p := range found[i].points {
			own[p.T] = p.F
		}
		for t := range own {
			if _, known := sums[t]; !known {
				sums[t] = 0
			}
		}
		var stacked []promql.FPoint
		for _, t := range times(found, step) {
			if _, has := own[t]; !has && !bars && sums[t] == 0 {
				continue
			}
			sums[t] += own[t]
			stacked = append(stacked, promql.FPoint{T: t, F: sums[t]})
		}
		found[i].points = stacked
	}
}

// times are the steps from the first point of all lines to the last.
func times(found []line, step time.Duration) []int64 {
	first, last := int64(math.MaxInt64), int64(0)
	for _, l := range found {
		if len(l.points) > 0 {
			first, last = min(first, l.points[0].T), max(last, l.points[len(l.points)-1].T)
		}
	}
	var out []int64
	for t := first; t <= last; t += step.Milliseconds() {
		out = append(out, t)
	}
	return out
}

// bounds are the least and the greatest value of the axis.
func bounds(p grafana.Panel, found []line) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range found {
		for _, point := range l.points {
			low, high = min(low, point.F), max(high, point.F)
		}
	}
	if p.Min != nil {
		low = min(*p.Min, low)
	}
	if p.Max != nil {
		high = *p.Max
	}
	if p.Unit == grafana.Count && high < 1 {
		high = 1
	}
	return low, high
}

func drawAxes(c *canvas, area plot, marks []float64, unit grafana.Unit) {
	for _, v := range marks {
		_, y := area.at(0, v)
		c.line(area.x, y, area.x+area.w, y)
		c.text([2]float64{area.x - 6, y + 4}, "axis", "end", format(v, unit, nil))
	}
	every := niceStep(area.window.To.Sub(area.window.From).Seconds()/5, grafana.Seconds)
	step := time.Duration(every) * time.Second
	for t := area.window.From.UTC().Truncate(step).Add(step); t.Before(area.window.To); t = t.Add(step) {
		x, _ := area.at(t.UnixMilli(), area.low)
		c.line(x, area.y, x, area.y+area.h)
		c.text([2]float64{x, area.y + area.h + 14}, "axis", "middle", clock(t.Hour(), t.Minute()))
	}
}

func drawLine(c *canvas, area plot, l line) {
	var d path
	for i, p := range l.points {
		if i > 0 && p.T-l.points[i-1].T > area.step.Milliseconds() {
			d.gap()
		}
		x, y := area.at(p.T, p.F)
		d.to(x, y)
		if !d.drawing || alone(l.points, i, area.step) {
			c.add(`<circle cx="%s" cy="%s" r="1.5" fill="%s"/>`, num(x), num(y), l.color)
		}
	}
	c.add(`<path d="%s" class="s" stroke="%s"/>`, d.d.String(), l.color)
}

// alone reports whether a point has no neighbors that a line leads to.
func alone(points []promql.FPoint, i int, step time.Duration) bool {
	far := func(a, b int) bool { return a < 0 || b >= len(points) || points[b].T-points[a].T > step.Milliseconds() }
	return far(i-1, i) && far(i, i+1)
}

// drawArea draws a line of a stack as steps, filled down to the one below it, which is drawn later and covers the rest.
func drawArea(c *canvas, area plot, found []line, i int) {
	points := found[i].points
	if len(points) == 0 {
		return
	}
	var d path
	for k, p := range points {
		if k > 0 {
			_, before := area.at(p.T, points[k-1].F)
			x, _ := area.at(p.T, p.F)
			d.to(x, before)
		}
		d.to(area.at(p.T, p.F))
	}
	end, _ := area.at(min(points[len(points)-1].T+area.step.Milliseconds(), area.window.To.UnixMilli()), 0)
	_, y := area.at(points[len(points)-1].T, points[len(points)-1].F)
	d.to(end, y)
	begin, bottom := area.at(points[0].T, area.low)
	outline := d.d.String()
	c.add(`<path d="%sL%s %sL%s %sZ" fill="#fff"/>`, outline, num(end), num(bottom), num(begin), num(bottom))
	c.add(`<path d="%sL%s %sL%s %sZ" fill="%s" fill-opacity=".45"/>`, outline, num(end), num(bottom), num(begin), num(bottom),
		found[i].color)
	c.add(`<path d="%s" class="s" stroke="%s"/>`, outline, found[i].color)
}

// drawBarSeries draws the bars of a line of a stack.
func drawBarSeries(c *canvas, area plot, found []line, i int) {
	_, bottom := area.at(0, area.low)
	left, _ := area.at(0, 0)
	right, _ := area.at(area.step.Milliseconds(), 0)
	wide := max((right-left)*0.8, 1)
	below := map[int64]float64{}
	if i > 0 {
		for _, p := range found[i-1].points {
			below[p.T] = p.F
		}
	}
	for _, p := range found[i].points {
		x, y := area.at(p.T, p.F)
		under := bottom
		if i > 0 {
			_, under = area.at(p.T, below[p.T])
		}
		if x-wide < area.x || under-y < 0.5 {
			continue
		}
		c.rect(box{x - wide, y, wide, under - y}, found[i].color, `fill-opacity=".85"`)
	}
}

// drawLegend writes the names of the series below the plot, and returns the height of that.
func drawLegend(c *canvas, found []line, in box) float64 {
	const lineHeight, mark, space = 17.0, 14.0, 16.0
	type entry struct {
		text, color string
		x           float64
		row         int
	}
	var out []entry
	x, row := in.x, 0
	for i, l := range found {
		text := fit(l.name, 11, in.w-mark)
		need := mark + width(text, 11) + space
		if x+need > in.x+in.w+space && x > in.x {
			x, row = in.x, row+1
		}
		if row == legendLines {
			out[len(out)-1].text = fmt.Sprintf("and %d more", len(found)-i+1)
			row--
			break
		}
		out = append(out, entry{text, l.color, x, row})
		x += need
	}
	height := float64(row+1) * lineHeight
	for _, e := range out {
		y := in.y + in.h - height + float64(e.row)*lineHeight + 12
		c.rect(box{e.x, y - 5, 10, 3}, e.color, `rx="1"`)
		c.text([2]float64{e.x + mark, y}, "legend", "start", e.text)
	}
	return height
}
