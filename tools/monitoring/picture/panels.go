package picture

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
)

// drawStat draws a number, and below it its course.
func drawStat(ctx context.Context, c *canvas, p grafana.Panel, in box, w Window) error {
	found, err := lines(ctx, p, w, w.step(p, in.w))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		drawEmpty(c, p, in)
		return nil
	}
	v := found[0].last()
	color := stepColor(p.Steps, v)
	c.add(`<text x="%s" y="%s" text-anchor="middle" style="font-size:32px;font-weight:600;fill:%s">%s</text>`,
		num(in.x+in.w/2), num(in.y+36), color, format(v, p.Unit, p.Decimals))
	found[0].color = color
	sparkline(c, found[0], box{in.x - 9, in.y + 56, in.w + 18, in.h - 49}, w)
	return nil
}

// sparkline draws the course of a value without axes.
func sparkline(c *canvas, l line, in box, w Window) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range l.points {
		low, high = min(low, p.F), max(high, p.F)
	}
	low = min(low, 0)
	if high <= low {
		high = low + 1
	}
	var d path
	for _, p := range l.points {
		d.to(in.x+w.share(p.T)*in.w, in.y+in.h-(p.F-low)/(high-low)*(in.h-4))
	}
	first, last := l.points[0], l.points[len(l.points)-1]
	c.add(`<path d="%sL%s %sL%s %sZ" fill="%s" fill-opacity=".12"/>`, d.d.String(), num(in.x+w.share(last.T)*in.w), num(in.y+in.h),
		num(in.x+w.share(first.T)*in.w), num(in.y+in.h), l.color)
	c.add(`<path d="%s" class="s" stroke="%s"/>`, d.d.String(), l.color)
}

// share is how far a time is from the begin of the window to its end.
func (w Window) share(ms int64) float64 {
	return float64(ms-w.From.UnixMilli()) / float64(w.To.Sub(w.From).Milliseconds())
}

// drawBarGauge draws a bar for the current value of each series, largest first.
func drawBarGauge(ctx context.Context, c *canvas, p grafana.Panel, in box, w Window) error {
	var found []line
	for _, q := range p.Queries {
		now, err := w.Store.Instant(ctx, grafana.Interpolate(q.Expr, w.Scrape, w.To.Sub(w.From), w.Scrape), w.To)
		if err != nil {
			return err
		}
		for _, s := range now {
			found = append(found, line{name: fmt.Sprintf("%024.6f", s.F), color: name(q, s.Metric.Get, s.Metric.String())})
		}
	}
	if len(found) == 0 {
		drawEmpty(c, p, in)
		return nil
	}
	bars := make([]bar, len(found))
	for i, l := range found {
		v, err := strconv.ParseFloat(l.name, 64)
		if err != nil {
			return err
		}
		bars[i] = bar{l.color, v}
	}
	slices.SortFunc(bars, func(a, b bar) int { return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.name, b.name)) })
	drawBars(c, p, in, bars)
	return nil
}

// bar is a bar of a gauge.
type bar struct {
	name  string
	value float64
}

func drawBars(c *canvas, p grafana.Panel, in box, bars []bar) {
	const rowHeight, barHeight, valueWidth = 26.0, 16.0, 60.0
	most, names := bars[0].value, 0.0
	if p.Max != nil {
		most = *p.Max
	}
	for _, b := range bars {
		names = max(names, width(b.name, 12))
	}
	names = min(names+10, in.w/2)
	length := in.w - names - valueWidth
	for i, b := range bars[:min(len(bars), int(in.h/rowHeight))] {
		y := in.y + float64(i)*rowHeight + 2
		color := stepColor(p.Steps, b.value)
		c.text([2]float64{in.x, y + 13}, "cell", "start", fit(b.name, 12, names))
		c.rect(box{in.x + names, y, length, barHeight}, "#f0f1f2", "")
		c.rect(box{in.x + names, y, length * min(b.value/max(most, 1e-9), 1), barHeight}, color, "")
		c.colored([2]float64{in.x + names + length + 8, y + 13}, "cell", color, format(b.value, p.Unit, p.Decimals))
	}
}

// drawTable draws the current results of all queries, joined by their labels, in the order of the first query.
func drawTable(ctx context.Context, c *canvas, p grafana.Panel, in box, w Window) error {
	rows, err := tableRows(ctx, p, w)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		drawEmpty(c, p, in)
		return nil
	}
	cells := make([][]string, len(rows))
	for i, row := range rows {
		for _, column := range p.Columns {
			cells[i] = append(cells[i], row.text(column))
		}
	}
	const rowHeight = 22.0
	x := columnsAt(p, cells, in)
	for k, column := range p.Columns {
		c.text([2]float64{x[k], in.y + 12}, "head", "start", fit(column.Title, 12, x[k+1]-x[k]-8))
	}
	visible := min(len(rows), int((in.h-18)/rowHeight))
	for i := range visible {
		y := in.y + 18 + float64(i)*rowHeight
		c.line(in.x, y, in.x+in.w, y)
		for k, column := range p.Columns {
			text := fit(cells[i][k], 12, x[k+1]-x[k]-8)
			if v, is := rows[i].values[column.Field]; is && len(column.Steps) > 0 {
				c.colored([2]float64{x[k], y + 15}, "cell", stepColor(column.Steps, v), text)
			} else {
				c.text([2]float64{x[k], y + 15}, "cell", "start", text)
			}
		}
	}
	return nil
}

// columnsAt are where the columns begin, by the width of their texts, and the right edge.
func columnsAt(p grafana.Panel, cells [][]string, in box) []float64 {
	wide, total := make([]float64, len(p.Columns)), 0.0
	for k, column := range p.Columns {
		wide[k] = width(column.Title, 12)
		for _, row := range cells {
			wide[k] = max(wide[k], width(row[k], 12))
		}
		wide[k] += 16
		total += wide[k]
	}
	out := []float64{in.x}
	for _, v := range wide {
		out = append(out, out[len(out)-1]+v*in.w/total)
	}
	return out
}

// tableRow is a row of a table: labels, and values by their fields.
type tableRow struct {
	labels labels.Labels
	values map[string]float64
}

func (r tableRow) text(column grafana.Column) string {
	if v, is := r.values[column.Field]; is {
		return format(v, column.Unit, nil)
	}
	return r.labels.Get(column.Field)
}

func tableRows(ctx context.Context, p grafana.Panel, w Window) ([]*tableRow, error) {
	var out []*tableRow
	at := map[string]*tableRow{}
	for i, q := range p.Queries {
		found, err := w.Store.Instant(ctx, grafana.Interpolate(q.Expr, w.Scrape, w.To.Sub(w.From), w.Scrape), w.To)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			of := s.Metric.DropMetricName()
			key := of.String()
			if at[key] == nil {
				at[key] = &tableRow{of, map[string]float64{}}
				out = append(out, at[key])
			}
			at[key].values[grafana.ValueColumn(i, len(p.Queries))] = s.F
		}
	}
	return out, nil
}
