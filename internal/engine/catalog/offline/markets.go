package offline

import (
	"fmt"
	"strconv"
	"strings"
)

// A file of a region starts with the line "dovetail-ec2-prices 1", and then has these lines, once each:
//
//	region NAME CURRENCY DOLLAR   the currency of its prices, and how much of it a dollar of Windows' fee is
//	month TEXT                    the month of the on-demand prices
//	note TEXT                     the source of the prices, if the region has no list of its own; optional
//	ratio OD SPOT SHARE           its prices relative to us-east-1, on-demand and spot; spot's share of the on-demand price; 0 = unknown
//	zones ZONE-ID...              the zones that the masks below refer to
//
// and a line for each type that is offered or has a price, sorted by name:
//
//	name, on-demand price, spot price, hexadecimal mask of the zones that offer it
//
// A price that finishes in "~" is derived.
const marketMagic = "dovetail-ec2-prices 1"

const derivedMark = "~"

// market is the offers of one region.
type market struct {
	currency, month, note    string
	dollar                   float64
	onDemandRatio, spotRatio float64
	spotShare                float64
	zoneIDs                  []string // sorted
	offers                   map[string]regionalOffer
}

// offer is a type in a region. A price of 0 is unknown.
type regionalOffer struct {
	onDemand, spot priceFigure
	zones          uint64 // bit i: offered in zoneIDs[i]
}

// figure is a price of a file.
type priceFigure struct {
	value   float64
	derived bool
}

func (f priceFigure) price() Price { return Price{PerHour: f.value, Derived: f.derived} }

func (f *priceFigure) parse(text string) error {
	if text == "" {
		return nil
	}
	text, f.derived = strings.CutSuffix(text, derivedMark)
	return float(&f.value, text)
}

func (c *Catalog) parseMarket(text []byte) error {
	m := &market{}
	lines := newLines(text)
	if lines.next() != marketMagic {
		return fmt.Errorf("not in the format %q", marketMagic)
	}
	line := lines.next()
	name, err := m.head(&line, lines)
	if err != nil {
		return err
	}
	m.offers = make(map[string]regionalOffer, strings.Count(lines.rest, "\n")+1)
	for last := ""; line != ""; line = lines.next() {
		fields := strings.Split(line, "\t")
		if len(fields) != 4 || fields[0] <= last {
			return fmt.Errorf("line %q: expected four fields, sorted by the first", line)
		}
		var o regionalOffer
		if err := o.parse(fields); err != nil {
			return fmt.Errorf("%s: %w", fields[0], err)
		}
		if o.zones>>len(m.zoneIDs) != 0 {
			return fmt.Errorf("%s: zones %x of %d", fields[0], o.zones, len(m.zoneIDs))
		}
		m.offers[fields[0]], last = o, fields[0]
	}
	c.markets[name] = m
	return nil
}

// head parses the lines above the table, beginning with line, and leaves the table's first one in it.
func (m *market) head(line *string, lines *lines) (name string, err error) {
	for *line != "" && !strings.Contains(*line, "\t") {
		word, rest, _ := strings.Cut(*line, " ")
		fields := strings.Fields(rest)
		switch {
		case word == "region" && len(fields) == 3:
			name, m.currency = fields[0], fields[1]
			err = float(&m.dollar, fields[2])
		case word == "month":
			m.month = rest
		case word == "note":
			m.note = rest
		case word == "ratio" && len(fields) == 3:
			for i, into := range []*float64{&m.onDemandRatio, &m.spotRatio, &m.spotShare} {
				if err = float(into, fields[i]); err != nil {
					return "", err
				}
			}
		case word == "zones":
			m.zoneIDs = fields
		default:
			return "", fmt.Errorf("unknown line %q", *line)
		}
		if err != nil {
			return "", fmt.Errorf("line %q: %w", *line, err)
		}
		*line = lines.next()
	}
	if name == "" || len(m.zoneIDs) == 0 {
		return "", fmt.Errorf("no region, or no zones")
	}
	return name, nil
}

func (o *regionalOffer) parse(fields []string) (err error) {
	if err = o.onDemand.parse(fields[1]); err != nil {
		return err
	}
	if err = o.spot.parse(fields[2]); err != nil {
		return err
	}
	if fields[3] != "" {
		o.zones, err = strconv.ParseUint(fields[3], 16, 64)
	}
	return err
}

// lines iterates over the lines of a text.
type lines struct{ rest string }

func newLines(text []byte) *lines { return &lines{string(text)} }

// next returns the next line; empty at the end.
func (l *lines) next() string {
	line, rest, _ := strings.Cut(l.rest, "\n")
	l.rest = rest
	return line
}
