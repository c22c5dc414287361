package planner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/attribution"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// Report is a plan, with the effort to make it.
type Report struct {
	Plan schedule.Plan
	// Changes are the workloads supplied beside a snapshot, Drift the nodes that drift by what was supplied; nil if
	// there are none.
	Changes []manifest.Change
	Drift   *Drift
	// Consolidation is nil if it was not requested.
	Consolidation *Consolidation
	// RuleCosts are what the rules of pods and pools cost; nil if that was not requested.
	RuleCosts *attribution.Result
	// Effort is not printed if nil, so that equal inputs print equal bytes.
	Effort *Effort
}

// Effort is the time and memory spent.
type Effort struct {
	// CompileSeconds is the time to read the inputs and the catalog, SolveSeconds the time to plan.
	CompileSeconds, SolveSeconds float64
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
}

// JSON prints the report for programs, piece by piece: the JSON of a large plan would take more memory than the plan.
func (r *Report) JSON(w io.Writer) error {
	p := &jsonWriter{w: bufio.NewWriterSize(w, 1<<16)}
	p.list("{", "claims", len(r.Plan.Launches), func(i int) any { return newClaim(&r.Plan.Launches[i]) })
	p.list(",", "existing", len(r.Plan.Placements), func(i int) any {
		return jsonExisting{r.Plan.Placements[i].Node, names(r.Plan.Placements[i].Pods)}
	})
	p.list(",", "unschedulable", len(r.Plan.Rejected), func(i int) any {
		return newUnschedulable(&r.Plan.Rejected[i])
	})
	r.disruption(p)
	if r.RuleCosts != nil {
		p.text(",\n  \"ruleCosts\": ")
		p.value("  ", newRuleCosts(r.RuleCosts))
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
	w   *bufio.Writer
	err error
}

func (p *jsonWriter) text(s string) {
	if p.err == nil {
		_, p.err = p.w.WriteString(s)
	}
}

// value writes a value, with an indent before all lines but the first.
func (p *jsonWriter) value(indent string, v any) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent(indent, "  ")
	if err := encoder.Encode(v); err != nil && p.err == nil {
		p.err = err
	}
	p.text(strings.TrimSuffix(b.String(), "\n"))
}

// list writes a field that is a list.
func (p *jsonWriter) list(before, name string, n int, item func(int) any) {
	p.text(before + "\n  \"" + name + "\": [")
	for i := range n {
		if i > 0 {
			p.text(",")
		}
		p.text("\n    ")
		p.value("    ", item(i))
	}
	if n > 0 {
		p.text("\n  ")
	}
	p.text("]")
}

func newUnschedulable(rejected *schedule.Rejection) jsonUnschedulable {
	out := jsonUnschedulable{Pod: name(rejected.Pod), Reasons: make([]jsonReason, 0, len(rejected.Reasons))}
	for _, why := range rejected.Reasons {
		out.Reasons = append(out.Reasons, jsonReason{why.Code, why.NodePool, why.Message})
	}
	return out
}

func newClaim(l *schedule.Launch) jsonClaim {
	claim := jsonClaim{
		NodePool: l.Pool.Name,
		Offering: jsonOffering{l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, l.Offering.Price, l.Offering.PriceDerived},
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
		out["compileSeconds"], out["solveSeconds"], out["peakRSSBytes"] = e.CompileSeconds, e.SolveSeconds, e.PeakRSS()
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
