package picture

import (
	"hash/fnv"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
)

// named are the colors that dashboards use by name, after Grafana's.
var named = map[string]string{
	"green": "#56a64b", "orange": "#f2790a", "red": "#e02f44", "yellow": "#e0b400", "blue": "#3274d9", "purple": "#a352cc",
	"light-purple": "#ca95e5", "text": "#8e9297",
}

// palette are the colors of series without one of their own, after Grafana's classic palette.
var palette = []string{
	"#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300", "#447ebc", "#c15c17",
}

// colorOf is the color of a series: its own, else one that depends on its name and that no series before it has.
func colorOf(p grafana.Panel, before []line, name string) string {
	for _, c := range p.Colors {
		if c.Series == name {
			return named[c.Color]
		}
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	first := int(h.Sum32() % uint32(len(palette)))
	for i := range palette {
		color := palette[(first+i)%len(palette)]
		if !taken(before, color) {
			return color
		}
	}
	return palette[first]
}

func taken(by []line, color string) bool {
	for _, l := range by {
		if l.color == color {
			return true
		}
	}
	return false
}

// stepColor is the color of a value by the steps of a panel or column.
func stepColor(steps []grafana.Step, v float64) string {
	color := "#24292e"
	for i, s := range steps {
		if i == 0 || v >= s.From {
			color = named[s.Color]
		}
	}
	return color
}
