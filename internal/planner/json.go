package planner

import (
	"encoding/json"
	"io"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// Report is a plan and what it took to make it.
type Report struct {
	Plan schedule.Plan
	// Effort is left out of what is printed if nil, so that equal inputs print equal bytes.
	Effort *Effort
}

// Effort is what the machine spent.
type Effort struct {
	// CompileSeconds went into reading the inputs and the catalog, SolveSeconds into the plan.
	CompileSeconds float64 `json:"compileSeconds"`
	SolveSeconds   float64 `json:"solveSeconds"`
	PeakRSSBytes   int64   `json:"peakRSSBytes"`
}

type jsonReport struct {
	Claims        []jsonClaim    `json:"claims"`
	Existing      []jsonExisting `json:"existing"`
	Unschedulable []jsonUnplaced `json:"unschedulable"`
	Stats         map[string]any `json:"stats"`
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
}

type jsonExisting struct {
	Node string   `json:"node"`
	Pods []string `json:"pods"`
}

type jsonUnplaced struct {
	Pod     string            `json:"pod"`
	Reasons []schedule.Reason `json:"reasons"`
}

// JSON prints the report for programs.
func (r *Report) JSON(w io.Writer) error {
	out := jsonReport{Claims: []jsonClaim{}, Existing: []jsonExisting{}, Unschedulable: []jsonUnplaced{}}
	for i := range r.Plan.Launches {
		l := &r.Plan.Launches[i]
		claim := jsonClaim{
			NodePool: l.Pool.Name,
			Offering: jsonOffering{l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, l.Offering.Price},
			Requests: l.Requests,
			Pods:     names(l.Pods),
		}
		for _, t := range l.InstanceTypes {
			claim.InstanceTypes = append(claim.InstanceTypes, t.Name)
		}
		out.Claims = append(out.Claims, claim)
	}
	for _, p := range r.Plan.Placements {
		out.Existing = append(out.Existing, jsonExisting{p.Node, names(p.Pods)})
	}
	for _, u := range r.Plan.Rejected {
		out.Unschedulable = append(out.Unschedulable, jsonUnplaced{name(u.Pod), u.Reasons})
	}
	var err error
	if out.Stats, err = r.stats(); err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// stats are the engine's, and the effort.
func (r *Report) stats() (map[string]any, error) {
	out := map[string]any{}
	for _, part := range []any{r.Plan.Stats, r.Effort} {
		data, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &out); err != nil {
			return nil, err
		}
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
