package picture

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
)

// format is a value with its unit, as Grafana shows it. decimals are automatic if nil.
func format(v float64, unit grafana.Unit, decimals *int) string {
	if math.IsNaN(v) {
		return "–"
	}
	text := func(v float64, suffix string) string { return digits(v, decimals) + suffix }
	switch unit {
	case grafana.Dollars:
		if decimals == nil {
			return "$" + text(v, "")
		}
		return "$" + thousands(strconv.FormatFloat(v, 'f', *decimals, 64))
	case grafana.Percent:
		return text(v, " %")
	case grafana.Ratio:
		return text(100*v, " %")
	case grafana.Seconds:
		return scaled(v, []scale{{1, "s"}, {60, "min"}, {3600, "h"}, {86400, "d"}}, text)
	case grafana.Bytes:
		return scaled(v, []scale{{1, "B"}, {1 << 10, "KiB"}, {1 << 20, "MiB"}, {1 << 30, "GiB"}, {1 << 40, "TiB"}}, text)
	case grafana.PerSecond, grafana.Operations:
		return text(v, "/s")
	}
	return scaled(v, []scale{{1, ""}, {1e3, "K"}, {1e6, "M"}}, text)
}

// scale is a multiple of a unit.
type scale struct {
	size float64
	name string
}

// scaled shows a value in the largest unit that it has one of; seconds also in milliseconds.
func scaled(v float64, scales []scale, text func(float64, string) string) string {
	if scales[0].name == "s" && v != 0 && math.Abs(v) < 1 {
		return text(v*1000, " ms")
	}
	use := scales[0]
	for _, s := range scales {
		if math.Abs(v) >= s.size {
			use = s
		}
	}
	if use.name == "" {
		return text(v, "")
	}
	return text(v/use.size, " "+use.name)
}

// digits shows three significant digits, or as many decimals as wanted.
func digits(v float64, decimals *int) string {
	if decimals != nil {
		return strconv.FormatFloat(v, 'f', *decimals, 64)
	}
	places := 0
	if a := math.Abs(v); a != 0 && a < 100 {
		places = min(2-int(math.Floor(math.Log10(a))), 4)
	}
	s := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// thousands separates the thousands of a number.
func thousands(s string) string {
	whole, rest, found := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if found {
		return whole + "." + rest
	}
	return whole
}

// ticks are round values from a bound to another, about as many as wanted. The last one is at or above the upper bound.
func ticks(low, high float64, unit grafana.Unit, about int) []float64 {
	if high <= low {
		high = low + 1
	}
	step := niceStep((high-low)/float64(about), unit)
	var out []float64
	for v := math.Floor(low/step) * step; ; v += step {
		out = append(out, v)
		if v >= high-step*1e-9 || len(out) > 20 {
			return out
		}
	}
}

// niceStep is the next round number: 1, 2 or 5 times a power of ten; in minutes for longer times, and in powers of two for bytes.
func niceStep(least float64, unit grafana.Unit) float64 {
	switch {
	case unit == grafana.Bytes:
		return math.Exp2(math.Ceil(math.Log2(math.Max(least, 1))))
	case unit == grafana.Seconds && least > 10:
		for _, s := range []float64{15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400} {
			if s >= least {
				return s
			}
		}
	}
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// clock is a time of day as the axis shows it.
func clock(hour, minute int) string { return fmt.Sprintf("%02d:%02d", hour, minute) }
