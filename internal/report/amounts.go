package report

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// HoursPerMonth is the average number of hours in a month: 365 * 24 / 12. Costs per month are 730 times those per hour.
const HoursPerMonth = 730

// Rounded prints an amount without its sign in so many decimals: half is rounded up, of the decimal number. The binary fraction of a price
// may be less than the price, and sums of the same prices in another order differ: a little more than an amount stands for it. The page of
// the console has the same rule (rounded in console/src/format.ts).
func Rounded(amount float64, decimals int) string {
	amount = math.Abs(amount)
	more := float64(amount * 1e-12) // on its own: fused with the addition, it would differ from one processor to the other
	return strconv.FormatFloat(amount+max(1e-9, more), 'f', decimals, 64)
}

// Dollars prints an hourly price as screens have it: with three decimals below $10, in which the smallest instance types differ, two below
// $1,000, and none above. What prints as zero has no sign; the sign is a minus (U+2212).
func Dollars(amount float64) string {
	decimals := 3
	switch a := math.Abs(amount); {
	case math.IsNaN(a) || math.IsInf(a, 0):
		return "?"
	case a >= 1000:
		decimals = 0
	case a >= 10:
		decimals = 2
	}
	return strings.Replace(Grouped(amount, decimals), "-", "−", 1)
}

// Amount is Dollars for a column with a title that has the unit.
func Amount(amount float64) string { return strings.Replace(Dollars(amount), "$", "", 1) }

// Money prints dollars in up to four decimals, and at least two.
func Money(amount float64) string {
	text := Rounded(amount, 4)
	return signed(amount, strings.TrimSuffix(strings.TrimSuffix(text, "0"), "0"))
}

// Hourly prints a cost per hour in four decimals, as columns of prices have them.
func Hourly(amount float64) string {
	return signed(amount, Price(math.Abs(amount))) + "/h"
}

// Price prints dollars in four decimals, for a column with a title that has the unit.
func Price(amount float64) string {
	return strings.Replace(signed(amount, Rounded(amount, 4)), "$", "", 1)
}

// Grouped prints dollars in so many decimals, with a comma after each three digits.
func Grouped(amount float64, decimals int) string {
	digits, cents, _ := strings.Cut(Rounded(amount, decimals), ".")
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	if cents != "" {
		digits += "." + cents
	}
	return signed(amount, digits)
}

// signed adds the dollar and the sign. What prints as zero has no sign.
func signed(amount float64, text string) string {
	if amount < 0 && strings.ContainsAny(text, "123456789") {
		return "-$" + text
	}
	return "$" + text
}

// Count prints a number with its noun, and a comma after each three digits.
func Count(n int, noun string) string {
	return strings.Replace(Plural(n, noun), strconv.Itoa(n), Thousands(n), 1)
}

// Thousands prints a number with a comma after each three digits.
func Thousands(n int) string { return strings.Replace(Grouped(float64(n), 0), "$", "", 1) }

// Plural prints a number with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Share prints a share from 0 to 1 in whole percent. What prints as zero has no sign.
func Share(share float64) string {
	return strings.Replace(strconv.FormatFloat(100*share, 'f', 0, 64)+"%", "-0%", "0%", 1)
}

// Percent is a share in whole percent, rounded down: what is not full is not 100.
func Percent(share float64) int { return int(100*share + 1e-9) }

// Time prints an instant in UTC: the time of day, and the day as well if it is not that of now.
func Time(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format("15:04") + " UTC"
	}
	return at.Format("2006-01-02 15:04") + " UTC"
}

// Age prints a duration in its two largest units: 3d4h, 5h12m, 7m30s, 12s.
func Age(d time.Duration) string {
	d = max(d, 0)
	days := d / (24 * time.Hour)
	units := []struct {
		n    int64
		unit string
	}{
		{int64(days), "d"},
		{int64(d/time.Hour) % 24, "h"},
		{int64(d/time.Minute) % 60, "m"},
		{int64(d/time.Second) % 60, "s"},
	}
	for i, u := range units {
		if u.n == 0 {
			continue
		}
		out := strconv.FormatInt(u.n, 10) + u.unit
		if i+1 < len(units) && units[i+1].n > 0 {
			out += strconv.FormatInt(units[i+1].n, 10) + units[i+1].unit
		}
		return out
	}
	return "0s"
}

// Duration prints a duration without units that are zero: 720h, 1h30m, 45s.
func Duration(d time.Duration) string {
	text := d.String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}
