package computed

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// valueEscapes are the escapes of the text format in values of labels.
var valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// line formats the series of a metric. It is not changed after its creation: scrapes run in parallel.
type line struct {
	name string
	// labels are in the order of their names, as everywhere in Prometheus.
	labels []label
}

// label is the text before a value, and which value follows.
type label struct {
	before string
	value  int
}

func newLine(name string, labels []string) *line {
	l := &line{name: name}
	sorted := slices.Sorted(slices.Values(labels))
	for i, key := range sorted {
		before := "," + key + `="`
		if i == 0 {
			before = "{" + key + `="`
		}
		l.labels = append(l.labels, label{before, slices.Index(labels, key)})
	}
	return l
}

// format returns a line of the text format.
func (l *line) format(buffer []byte, value float64, labels []string) []byte {
	out := append(buffer[:0], l.name...)
	for _, of := range l.labels {
		out = append(out, of.before...)
		out = append(appendEscaped(out, labels[of.value]), '"')
	}
	if len(l.labels) > 0 {
		out = append(out, '}')
	}
	return append(appendValue(append(out, ' '), value), '\n')
}

func appendEscaped(out []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c == '\\' || c == '"' || c == '\n' || c >= 0x80 {
			return append(out, valueEscapes.Replace(strings.ToValidUTF8(text, "\uFFFD"))...)
		}
	}
	return append(out, text...)
}

func appendValue(out []byte, value float64) []byte {
	if math.IsInf(value, 1) {
		return append(out, "+Inf"...)
	}
	return strconv.AppendFloat(out, value, 'g', -1, 64) // also writes NaN and -Inf as Prometheus does
}
