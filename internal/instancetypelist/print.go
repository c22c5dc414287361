package instancetypelist

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Report is a list with its context.
type Report struct {
	// Region, NodePool and NodeClass are empty where there is none.
	Region, NodePool, NodeClass string
	// Basis is the source of derived prices, and Currency that of all prices; empty if unknown.
	Basis, Currency string
	// Prices states where prices come from, PricesProblem why they are not those that were requested, or not all of them; empty if unknown.
	Prices, PricesProblem string
	Entries               []Entry
}

// Names prints the types' names, one per line.
func (r *Report) Names(w io.Writer) error {
	var b strings.Builder
	for i := range r.Entries {
		fmt.Fprintln(&b, r.Entries[i].Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Table prints a line per type. Where lines have more than width columns, why a type is unavailable is on lines of its own; 0 is no limit.
func (r *Report) Table(w io.Writer, width int) error { return r.table(w, false, width) }

// WideTable prints a line per type, with all columns.
func (r *Report) WideTable(w io.Writer) error { return r.table(w, true, 0) }

func (r *Report) table(w io.Writer, wide bool, width int) error {
	if len(r.Entries) == 0 {
		_, err := fmt.Fprintln(w, "no instance type matches")
		return err
	}
	columns := []string{"TYPE", "CPU", "MEMORY", "PODS", "ALLOCATABLE", "ZONES", "$/H", "SPOT $/H"}
	if wide {
		columns = append(columns, "CAPACITY", "ARCH", "DISK", "OTHER")
	}
	reasons := slices.ContainsFunc(r.Entries, func(e Entry) bool { return e.Why != "" })
	if reasons {
		columns = append(columns, "UNAVAILABLE")
	}
	rows := [][]string{columns}
	for i := range r.Entries {
		e := &r.Entries[i]
		row := []string{
			e.Name, e.Capacity.Cpu().String(), size(*e.Capacity.Memory()), e.Capacity.Pods().String(),
			cores(*e.Allocatable.Cpu()) + " / " + size(*e.Allocatable.Memory()), e.zones(r.Region),
			e.price(karpv1.CapacityTypeOnDemand), e.price(karpv1.CapacityTypeSpot),
		}
		if wide {
			arch, _ := e.Requirements.Get(corev1.LabelArchStable).Single()
			row = append(row, e.capacityTypes(), arch, size(*e.Allocatable.StorageEphemeral()), e.other())
		}
		if reasons {
			row = append(row, e.Why)
		}
		rows = append(rows, row)
	}
	if _, err := io.WriteString(w, r.lines(rows, reasons, width)); err != nil {
		return err
	}
	return r.footnotes(w)
}

// lines are the rows below each other. With reasons, the last column is why a type is unavailable.
func (r *Report) lines(rows [][]string, reasons bool, width int) string {
	lines := report.Aligned(rows, nil)
	wide := slices.ContainsFunc(lines, func(line string) bool { return utf8.RuneCountInString(line) > width })
	if !reasons || width == 0 || !wide {
		return strings.Join(lines, "\n") + "\n"
	}
	for i := range rows {
		rows[i] = rows[i][:len(rows[i])-1]
	}
	p := report.Page{Width: width}
	for i, line := range report.Aligned(rows, nil) {
		p.Printf("%s\n", line)
		if i > 0 && r.Entries[i-1].Why != "" {
			p.Indented("  ", r.Entries[i-1].Why)
		}
	}
	return p.String()
}

// footnotes explains the prices.
func (r *Report) footnotes(w io.Writer) error {
	if r.Prices != "" {
		p := report.Page{Width: report.Width}
		p.Source(r.Prices, time.Time{})
		if _, err := p.WriteTo(w); err != nil {
			return err
		}
	}
	if r.Basis != "" && slices.ContainsFunc(r.Entries, func(e Entry) bool { return e.derived() }) {
		if _, err := fmt.Fprintf(w, "\n~ marks a derived price, which is in no price list (%s).\n", r.Basis); err != nil {
			return err
		}
	}
	if r.Currency != "" && r.Currency != "USD" {
		_, err := fmt.Fprintf(w, "\nPrices are in %s, not in dollars.\n", r.Currency)
		return err
	}
	return nil
}

// derived reports whether any price that the table shows is derived.
func (e *Entry) derived() bool {
	return strings.HasPrefix(e.price(karpv1.CapacityTypeOnDemand), derivedMark) ||
		strings.HasPrefix(e.price(karpv1.CapacityTypeSpot), derivedMark)
}

const derivedMark = "~"

const none = "-"

// size formats a number of bytes in GiB, with one decimal below 100.
func size(q resource.Quantity) string {
	gib := float64(q.Value()) / (1 << 30)
	digits := 1
	if gib >= 100 {
		digits = 0
	}
	return strconv.FormatFloat(gib, 'f', digits, 64) + "Gi"
}

func cores(q resource.Quantity) string {
	return strconv.FormatFloat(q.AsApproximateFloat64(), 'f', 2, 64)
}

func (e *Entry) price(capacityType string) string {
	o, ok := e.cheapest(capacityType)
	if !ok {
		return none
	}
	mark := ""
	if o.PriceDerived {
		mark = derivedMark
	}
	return mark + strconv.FormatFloat(o.Price, 'f', 4, 64)
}

// zones returns the zones in which the type is available, without the prefix of the region.
func (e *Entry) zones(region string) string {
	return list(e.Offerings, func(o *catalog.Offering) string { return strings.TrimPrefix(strings.TrimPrefix(o.Zone, region), "-") })
}

func (e *Entry) capacityTypes() string {
	return list(e.Offerings, func(o *catalog.Offering) string { return o.CapacityType })
}

// list returns a property of the available offerings, each value once, sorted.
func list(offerings []catalog.Offering, of func(*catalog.Offering) string) string {
	found := map[string]bool{}
	for i := range offerings {
		if offerings[i].Available {
			found[of(&offerings[i])] = true
		}
	}
	if len(found) == 0 {
		return none
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ",")
}

// usual are the resources that have a column.
var usual = []corev1.ResourceName{
	corev1.ResourceCPU,
	corev1.ResourceMemory,
	corev1.ResourceEphemeralStorage,
	corev1.ResourcePods,
	awsv1.ResourcePodENI,
}

// other returns the resources that only some types have.
func (e *Entry) other() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(e.Allocatable)) {
		if q := e.Allocatable[name]; !slices.Contains(usual, name) {
			out = append(out, fmt.Sprintf("%s=%s", name, q.String()))
		}
	}
	if len(out) == 0 {
		return none
	}
	return strings.Join(out, ",")
}

// The JSON of a report.
type (
	// Document is a list for programs.
	Document struct {
		Region    string `json:"region,omitempty"`
		NodePool  string `json:"nodePool,omitempty"`
		NodeClass string `json:"nodeClass,omitempty"`
		Basis     string `json:"priceBasis,omitempty"` // of derived prices
		Currency  string `json:"currency,omitempty"`
		// Prices states where prices come from.
		Prices string `json:"prices,omitempty"`
		// PricesProblem states why they are not those that were requested, or not all of them.
		PricesProblem string      `json:"pricesProblem,omitempty"`
		InstanceTypes []entryJSON `json:"instanceTypes"`
	}
	entryJSON struct {
		Name        string              `json:"name"`
		Available   bool                `json:"available"`
		Why         string              `json:"why,omitempty"` // not available
		Capacity    corev1.ResourceList `json:"capacity"`
		Allocatable corev1.ResourceList `json:"allocatable"`
		// Labels are the labels of nodes of the type, with all possible values.
		Labels    map[string][]string `json:"labels"`
		Offerings []offeringJSON      `json:"offerings"`
	}
	offeringJSON struct {
		Zone         string `json:"zone"`
		CapacityType string `json:"capacityType"`
		Available    bool   `json:"available"`
		Why          string `json:"why,omitempty"` // not available
		// Price is per hour; it is omitted if unknown.
		Price float64 `json:"price,omitempty"`
		// PriceDerived is true for a price that is in no price list.
		PriceDerived bool   `json:"priceDerived,omitempty"`
		Reservation  string `json:"reservation,omitempty"`
		Partition    string `json:"partition,omitempty"`
	}
)

// JSON prints all data, for programs.
func (r *Report) JSON(w io.Writer) error {
	out := Document{
		Region:        r.Region,
		NodePool:      r.NodePool,
		NodeClass:     r.NodeClass,
		Basis:         r.Basis,
		Currency:      r.Currency,
		Prices:        r.Prices,
		PricesProblem: r.PricesProblem,
		InstanceTypes: make([]entryJSON, len(r.Entries)),
	}
	for i := range r.Entries {
		e := &r.Entries[i]
		t := entryJSON{
			Name: e.Name, Available: e.Why == "", Why: e.Why, Capacity: e.Capacity, Allocatable: e.Allocatable,
			Labels: map[string][]string{}, Offerings: make([]offeringJSON, len(e.Offerings)),
		}
		for _, q := range e.Requirements.All() {
			if values := q.Values(); q.Operator() == corev1.NodeSelectorOpIn && len(values) > 0 {
				t.Labels[q.Key()] = values
			}
		}
		for j := range e.Offerings {
			o := &e.Offerings[j]
			partition, _ := o.Requirements.Get(awsv1.LabelPlacementGroupPartition).Single()
			t.Offerings[j] = offeringJSON{
				o.Zone,
				o.CapacityType,
				o.Available,
				o.UnavailableMessage,
				o.Price,
				o.PriceDerived,
				o.ReservationID,
				partition,
			}
		}
		out.InstanceTypes[i] = t
	}
	return report.JSON(w, "InstanceTypeList", out)
}
