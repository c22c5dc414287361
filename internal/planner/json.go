package planner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/attribution"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Report is a plan, with the effort to make it.
type Report struct {
	Plan schedule.Plan
	// Prices states where prices come from; it is not printed if empty. PricesProblem states why they are not those that were requested, or
	// not all of them.
	Prices, PricesProblem string
	// Changes are the workloads supplied beside a snapshot, Drift the nodes that drift by what was supplied; nil if
	// there are none.
	Changes []manifest.Change
	Drift   *Drift
	// Consolidation is nil if it was not requested.
	Consolidation *Consolidation
	// RuleCosts holds what the rules of pods and pools cost; nil if that was not requested.
	RuleCosts *attribution.Result
	// Buffers is the room that capacity buffers reserve; nil if there are none.
	Buffers *buffer.Placement
	// Effort is not printed if nil, so that equal inputs print equal bytes.
	Effort *Effort
}

// Effort is the time and memory spent.
type Effort struct {
	// ReadSeconds is the time to read and validate the inputs and the catalog, CompileSeconds the time to build and
	// compile the snapshot, SolveSeconds the time to search for the plan.
	ReadSeconds, CompileSeconds, SolveSeconds float64
	// PrintSeconds returns the time to print. It is called last, so only the end of the output is missing.
	PrintSeconds func() float64
	// PeakRSS returns the peak memory of the process in bytes. It is called last, since printing takes memory, too.
	PeakRSS func() int64
}

type jsonClaim struct {
	NodePool      string              `json:"nodePool"`
	Offering      jsonOffering        `json:"offering"`
	InstanceTypes []string            `json:"instanceTypes"`
	Requests      corev1.ResourceList `json:"requests"`
	Pods          []string            `json:"pods"`
}

type jsonOffering struct {
	InstanceType string  `json:"instanceType"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"price"`
	// PriceDerived is omitted for listed prices.
	PriceDerived bool `json:"priceDerived,omitempty"`
}

type jsonExisting struct {
	Node string   `json:"node"`
	Pods []string `json:"pods"`
}

type jsonUnschedulable struct {
	Pod     string       `json:"pod"`
	Reasons []jsonReason `json:"reasons"`
}

// jsonReason is a reason; its pool is empty if it concerns no pool.
type jsonReason struct {
	Code     schedule.Code `json:"code"`
	NodePool string        `json:"nodePool"`
	Message  string        `json:"message"`
	// Rule holds what Message is made of; nil if the code states all.
	Rule *rejection.Rule `json:"rule,omitempty"`
}

// JSON prints the report for programs, piece by piece: the JSON of a large plan would take more memory than the plan.
func (r *Report) JSON(w io.Writer) error {
	p := &jsonWriter{w: bufio.NewWriterSize(w, 1<<16)}
	p.list("{\n  "+report.Header("Plan")+",", "claims", len(r.Plan.Launches), func(i int) { p.claim(&r.Plan.Launches[i]) })
	p.list(",", "existing", len(r.Plan.Placements), func(i int) { p.existing(&r.Plan.Placements[i]) })
	p.list(",", "unschedulable", len(r.Plan.Rejected), func(i int) {
		p.value(itemIndent, newUnschedulable(&r.Plan.Rejected[i]))
	})
	if preferences := r.preferences(); len(preferences) > 0 {
		p.list(",", "preferences", len(preferences), func(i int) { p.value(itemIndent, newPreference(&preferences[i])) })
	}
	r.disruption(p)
	if names := r.bufferNames(); len(names) > 0 {
		p.list(",", "buffers", len(names), func(i int) { p.value(itemIndent, newBuffer(names[i], r.Buffers.Buffers[names[i]])) })
		p.list(",", "bufferClaims", len(r.Buffers.Launches), func(i int) { p.claim(&r.Buffers.Launches[i]) })
	}
	if r.RuleCosts != nil {
		p.text(",\n  \"ruleCosts\": ")
		p.value("  ", newRuleCosts(r.RuleCosts))
	}
	for _, of := range [][2]string{{"prices", r.Prices}, {"pricesProblem", r.PricesProblem}} {
		if of[1] != "" {
			p.text(",\n  \"" + of[0] + "\": ")
			p.value("  ", of[1])
		}
	}
	p.text(",\n  \"stats\": ")
	stats, err := r.stats()
	if err != nil {
		return err
	}
	p.value("  ", stats)
	p.text("\n}\n")
	if p.err != nil {
		return p.err
	}
	return p.w.Flush()
}

// jsonWriter writes parts of one object, until the first error.
type jsonWriter struct {
	w     *bufio.Writer
	err   error
	types map[typesKey]typesText
}

func (p *jsonWriter) text(s string) {
	if p.err == nil {
		_, p.err = p.w.WriteString(s)
	}
}

// value writes a value, with an indent before all lines but the first.
func (p *jsonWriter) value(indent string, v any) { p.text(p.encoded(indent, v)) }

// encoded returns a value as JSON, with an indent before all lines but the first.
func (p *jsonWriter) encoded(indent string, v any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent(indent, "  ")
	if err := encoder.Encode(v); err != nil && p.err == nil {
		p.err = err
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// itemIndent is the indent of the items of lists, memberIndent that of the members of such items.
const itemIndent, memberIndent = "    ", itemIndent + "  "

// list writes a field that is a list. item writes an item.
func (p *jsonWriter) list(before, name string, n int, item func(int)) {
	p.text(before + "\n  \"" + name + "\": [")
	for i := range n {
		if i > 0 {
			p.text(",")
		}
		p.text("\n" + itemIndent)
		item(i)
	}
	if n > 0 {
		p.text("\n  ")
	}
	p.text("]")
}

// claim writes a jsonClaim. The names of pods and instance types are nearly all of a plan: without the encoder, which
// writes everything and then indents it, they take a tenth of the time.
func (p *jsonWriter) claim(l *schedule.Launch) {
	p.text("{\n" + memberIndent + "\"nodePool\": ")
	p.quoted(l.Pool.Name)
	p.text(",\n" + memberIndent + "\"offering\": ")
	p.value(memberIndent, newOffering(l))
	p.instanceTypes(l.InstanceTypes)
	p.text(",\n" + memberIndent + "\"requests\": ")
	p.value(memberIndent, l.Requests)
	p.pods(l.Pods)
	p.text("\n" + itemIndent + "}")
}

// typesKey identifies a list of instance types well enough: a list with an equal key replaces the other.
type typesKey struct {
	first *catalog.InstanceType
	n     int
}

// typesText is a list of instance types as JSON.
type typesText struct {
	list []*catalog.InstanceType
	text string
}

// maxTypesTexts bounds the lists of instance types that are kept: at 400 types, each takes 10 KB.
const maxTypesTexts = 256

// instanceTypes writes a list of instance types. Many nodes have the same, which is most of the text of a plan.
func (p *jsonWriter) instanceTypes(list []*catalog.InstanceType) {
	var key typesKey
	if key.n = len(list); key.n > 0 {
		key.first = list[0]
	}
	if known, ok := p.types[key]; ok && slices.Equal(known.list, list) {
		p.text(known.text)
		return
	}
	var b bytes.Buffer
	part := jsonWriter{w: bufio.NewWriter(&b), err: p.err}
	part.names("instanceTypes", len(list), func(i int) (first, second string) { return list[i].Name, "" })
	if p.err = part.err; p.err == nil {
		p.err = part.w.Flush()
	}
	if p.types == nil || len(p.types) == maxTypesTexts {
		p.types = map[typesKey]typesText{}
	}
	p.types[key] = typesText{list, b.String()}
	p.text(b.String())
}

// existing writes a jsonExisting.
func (p *jsonWriter) existing(pl *schedule.Placement) {
	p.text("{\n" + memberIndent + "\"node\": ")
	p.quoted(pl.Node)
	p.pods(pl.Pods)
	p.text("\n" + itemIndent + "}")
}

func (p *jsonWriter) pods(pods []*corev1.Pod) {
	namespace, prefix := "", ""
	p.names("pods", len(pods), func(i int) (first, second string) {
		if i == 0 || pods[i].Namespace != namespace {
			namespace, prefix = pods[i].Namespace, pods[i].Namespace+"/"
		}
		return prefix, pods[i].Name
	})
}

// names writes a member that is a list of names, each in two parts.
func (p *jsonWriter) names(member string, n int, name func(int) (first, second string)) {
	p.text(",\n" + memberIndent + "\"" + member + "\": [")
	var line []byte
	for i := range n {
		line = line[:0]
		if i > 0 {
			line = append(line, ',')
		}
		first, second := name(i)
		line = append(line, "\n"+memberIndent+"  "...)
		line = p.appendQuoted(line, first, second)
		if p.err == nil {
			_, p.err = p.w.Write(line)
		}
	}
	if n > 0 {
		p.text("\n" + memberIndent)
	}
	p.text("]")
}

// quoted writes a string.
func (p *jsonWriter) quoted(s string) { p.text(string(p.appendQuoted(nil, s, ""))) }

// appendQuoted appends a string, given in two parts.
func (p *jsonWriter) appendQuoted(to []byte, first, second string) []byte {
	if !plain(first) || !plain(second) {
		return append(to, p.encoded("", first+second)...)
	}
	to = append(append(to, '"'), first...)
	return append(append(to, second...), '"')
}

// plain reports whether JSON has a string as it is.
func plain(s string) bool {
	for i := range len(s) {
		if b := s[i]; b < ' ' || b > '~' || b == '"' || b == '\\' {
			return false
		}
	}
	return true
}

func newUnschedulable(rejected *schedule.Rejection) jsonUnschedulable {
	out := jsonUnschedulable{Pod: name(rejected.Pod), Reasons: make([]jsonReason, 0, len(rejected.Reasons))}
	for _, why := range rejected.Reasons {
		out.Reasons = append(out.Reasons, jsonReason{why.Code, why.NodePool, wording.Reason(why), why.Rule})
	}
	return out
}

func newOffering(l *schedule.Launch) jsonOffering {
	return jsonOffering{l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, l.Offering.Price, l.Offering.PriceDerived}
}

func newClaim(l *schedule.Launch) jsonClaim {
	claim := jsonClaim{
		NodePool: l.Pool.Name,
		Offering: newOffering(l),
		Requests: l.Requests,
		Pods:     names(l.Pods),
	}
	for _, t := range l.InstanceTypes {
		claim.InstanceTypes = append(claim.InstanceTypes, t.Name)
	}
	return claim
}

// stats returns the engine's statistics and the effort.
func (r *Report) stats() (map[string]any, error) {
	out := map[string]any{}
	data, err := json.Marshal(r.Plan.Stats)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	delete(out, "steps") // the engine's own measure
	if e := r.Effort; e != nil {
		out["readSeconds"], out["compileSeconds"], out["solveSeconds"] = e.ReadSeconds, e.CompileSeconds, e.SolveSeconds
		out["printSeconds"], out["peakRSSBytes"] = e.PrintSeconds(), e.PeakRSS()
	}
	return out, nil
}

func name(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func names(pods []*corev1.Pod) []string {
	out := make([]string, len(pods))
	for i, p := range pods {
		out[i] = name(p)
	}
	return out
}
