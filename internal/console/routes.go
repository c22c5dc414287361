package console

import (
	"cmp"
	_ "embed"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
	"github.com/dovetail-k8s/dovetail/internal/inspect/podreport"
	"github.com/dovetail-k8s/dovetail/internal/inspect/poolreport"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

const (
	apiRoot    = "/api/v1"
	whatIfPath = apiRoot + "/what-if"
	// eventsPath is the path of the stream, below apiRoot.
	eventsPath = "/events"
)

// document describes the API. A test compares it with the routes, and answers with it.
//
//go:embed openapi.json
var document []byte

func serveDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document) // the browser has gone
}

// route is one operation of the API, with what the document needs of it.
type route struct {
	Method, Path, Summary string
	// Query are its parameters, with their descriptions.
	Query []parameter
	// Body is a value of the type that it takes; nil if it takes none.
	Body any
	// Answer is a value of the type that it answers with.
	Answer any
	answer func(*http.Request) (any, error)
}

// parameter is a parameter in the query of a request.
type parameter struct {
	Name, Description string
	// Many is true for one that can be repeated.
	Many bool
}

func (c *Console) routes() []route {
	return slices.Concat(c.fleetRoutes(), c.objectRoutes(), c.answerRoutes(), c.pastRoutes())
}

// fleetRoutes list what the cluster has now.
func (c *Console) fleetRoutes() []route {
	return []route{
		{
			Method: "GET", Path: clustersPath, Summary: "The clusters in numbers; each other path is also below it, after the name of a cluster",
			Answer: Clusters{}, answer: func(*http.Request) (any, error) { return Clusters{Clusters: []Cluster{c.row()}}, nil },
		},
		{
			Method: "GET", Path: apiRoot + "/about", Summary: "What this console shows",
			Answer: About{}, answer: func(*http.Request) (any, error) { return c.about(), nil },
		},
		{
			Method: "GET", Path: apiRoot + "/fleet", Summary: "All nodes, the cost, and the planned changes",
			Answer: Fleet{}, answer: func(*http.Request) (any, error) { s, _ := c.hub.current(); return s.Fleet, nil },
		},
		{
			Method: "GET", Path: apiRoot + "/pods", Summary: "The pods of some nodes",
			Query: []parameter{{"node", "ID of a node", true}}, Answer: NodePods{}, answer: c.pods,
		},
		{
			Method: "GET", Path: apiRoot + "/search", Summary: "Pods by a part of NAMESPACE/NAME, and checks of the doctor by a part of their ID",
			Query: []parameter{{"text", "the part, of 1 to 320 characters; 3 for checks", false}}, Answer: Found{}, answer: c.search,
		},
		{
			Method: "GET", Path: apiRoot + "/pending", Summary: "Pods without a node, by workload",
			Query: []parameter{
				{"from", "the index of the first workload; default: 0", false}, {"find", "a text that the workloads have, whatever its case", false},
			},
			Answer: Pending{}, answer: c.pending,
		},
	}
}

// objectRoutes answer about one object of the cluster as it is, or as it was at a time.
func (c *Console) objectRoutes() []route {
	return []route{
		{
			Method: "GET", Path: apiRoot + "/nodes/{name}", Summary: "What is known of a node without a plan",
			Answer: nodereport.Report{}, answer: c.knownNode,
		},
		{
			Method: "GET", Path: apiRoot + "/nodes/{name}/explain", Summary: "Why a node stays or goes, and what its removal would do",
			Query: []parameter{atParameter}, Answer: nodereport.Report{}, answer: c.explainNode,
		},
		{
			Method: "GET", Path: apiRoot + "/pods/{namespace}/{name}/explain",
			Summary: "Where a pod runs, or why it is pending, with the smallest change that makes it run",
			Query:   []parameter{atParameter}, Answer: podreport.Report{}, answer: c.explainPod,
		},
		{
			Method: "GET", Path: apiRoot + "/nodepools", Summary: "The names of the NodePools, sorted, and of their node classes",
			Query: []parameter{atParameter}, Answer: NodePools{}, answer: c.nodePools,
		},
		{
			Method: "GET", Path: apiRoot + "/nodepools/{name}", Summary: "What is known of a NodePool without a plan",
			Answer: poolreport.Report{}, answer: c.knownNodePool,
		},
		{
			Method: "GET", Path: apiRoot + "/nodepools/{name}/explain", Summary: "What a NodePool's budgets allow, and why its nodes stay or go",
			Query: []parameter{atParameter}, Answer: poolreport.Report{}, answer: c.explainNodePool,
		},
		{
			Method: "GET", Path: apiRoot + "/nodepools/{name}/manifest", Summary: "A NodePool as YAML to edit",
			Answer: NodePoolManifest{}, answer: c.nodePoolManifest,
		},
		{
			Method: "GET", Path: apiRoot + "/nodeclasses/{name}",
			Summary: "An EC2NodeClass with the images, subnets and security groups that its selectors found",
			Answer:  NodeClassReport{}, answer: c.nodeClass,
		},
		{
			Method: "GET", Path: apiRoot + "/nodeclaims/{name}", Summary: "A NodeClaim with its instance, its conditions and its events",
			Query: []parameter{atParameter}, Answer: NodeClaimReport{}, answer: c.nodeClaim,
		},
	}
}

// answerRoutes compute something about the whole cluster.
func (c *Console) answerRoutes() []route {
	return []route{
		{
			Method: "GET", Path: apiRoot + "/costs", Summary: "What pods cost by namespace or by a label; the rows add up to the cost of all nodes",
			Query:  []parameter{{"by", "namespace (default) or label", false}, {"label", "the key of the label", false}},
			Answer: Costs{}, answer: c.costs,
		},
		{
			Method: "GET", Path: apiRoot + "/assessment", Summary: "What the same pods would cost, and which switches would save how much",
			Query:  []parameter{{"compute", "true to assess a large cluster, too", false}},
			Answer: Assessment{}, answer: c.assessment,
		},
		{
			Method: "POST", Path: whatIfPath, Summary: "What an edit would do, of a NodePool, a node class, replicas or feature gates: cost, drift, moves. Nothing is written",
			Body: WhatIfRequest{}, Answer: WhatIf{}, answer: c.whatIf,
		},
		{
			Method: "GET", Path: whatIfPath + "/choices", Summary: "The Deployments that can be scaled in what-if, and the feature gates that passes read",
			Answer: WhatIfChoices{}, answer: c.whatIfChoices,
		},
		{
			Method: "GET", Path: apiRoot + "/doctor", Summary: "What will fail, may fail or costs money",
			Query:  []parameter{{"fresh", "true to make the checks again now", false}},
			Answer: Diagnosis{}, answer: c.doctor,
		},
	}
}

// pastRoutes answer about what was recorded.
func (c *Console) pastRoutes() []route {
	return []route{
		{
			Method: "GET", Path: apiRoot + "/spend", Summary: "What the nodes cost over time, and the lower bound",
			Answer: Spend{}, answer: c.spend,
		},
		{
			Method: "GET", Path: apiRoot + "/past", Summary: "The fleet and the pending pods at a recorded time",
			Query: []parameter{{"at", "a time (RFC 3339)", false}}, Answer: Past{}, answer: c.past,
		},
		{
			Method: "GET", Path: apiRoot + "/decisions", Summary: "What a controller decided, the latest first",
			Query:  []parameter{{"since", "a time (RFC 3339); default: a day before the last decision", false}},
			Answer: Decisions{}, answer: c.decisions,
		},
		{
			Method: "GET", Path: apiRoot + "/decisions/{id}", Summary: "A decision with its rule, alternatives, prices and steps",
			Answer: recorder.Decision{}, answer: c.decision,
		},
	}
}

// About describes what the console can show.
type About struct {
	Version string `json:"version"`
	Cluster string `json:"cluster"`
	File    bool   `json:"file"`
	// Doctor and Decisions report whether there are such views.
	Doctor    bool `json:"doctor"`
	Decisions bool `json:"decisions"`
	// Recorded is true if there is nothing but a recording. The fleet is then that of its last pass.
	Recorded bool `json:"recorded"`
}

func (c *Console) about() About {
	return About{
		Version: c.Version, Cluster: c.Name, File: c.File, Doctor: c.Diagnose != nil, Decisions: c.Sources.Decisions != nil, Recorded: c.Recorded,
	}
}

func (c *Console) explainNode(r *http.Request) (any, error) {
	name := r.PathValue("name")
	return c.explained(r, "node "+name, func(v *planned) (any, error) { return v.node(name) })
}

// node is the report of a node, or of a NodeClaim that is none yet.
func (p *planned) node(name string) (any, error) {
	if known, err := nodeOrClaim(nodereport.KnownOf(p.View), name); err != nil || !known.Computing {
		return known, err
	}
	return nodeOrClaim(p.decide(), name)
}

func (c *Console) knownNode(r *http.Request) (any, error) {
	v, err := c.views.current(r.Context())
	if err != nil {
		return nil, err
	}
	return nodeOrClaim(nodereport.KnownOf(v), r.PathValue("name"))
}

// nodeOrClaim is the report of a node, or of a NodeClaim that is none yet.
func nodeOrClaim(of interface {
	OfNode(name string) (*nodereport.Report, error)
	OfClaim(name string) (*nodereport.Report, error)
}, name string,
) (*nodereport.Report, error) {
	found, err := of.OfNode(name)
	if missing := (*inspect.NotFoundError)(nil); errors.As(err, &missing) {
		if claim, failed := of.OfClaim(name); failed == nil {
			return claim, nil
		}
	}
	return found, err
}

func (c *Console) explainPod(r *http.Request) (any, error) {
	name := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	return c.explained(r, "pod "+name.String(), func(v *planned) (any, error) { return podreport.Explain(v.View, name) })
}

func (c *Console) explainNodePool(r *http.Request) (any, error) {
	name := r.PathValue("name")
	return c.explained(r, "nodepool "+name, func(v *planned) (any, error) { return v.nodePool(name) })
}

func (p *planned) nodePool(name string) (any, error) {
	if known, err := poolreport.Known(p.View, name); err != nil || !known.Computing {
		return known, err
	}
	return poolreport.OfDecisions(p.decide(), name)
}

func (c *Console) knownNodePool(r *http.Request) (any, error) {
	v, err := c.views.current(r.Context())
	if err != nil {
		return nil, err
	}
	return poolreport.Known(v, r.PathValue("name"))
}

// NodePools are names of NodePools. Classes has the name of the node class of each.
type NodePools struct {
	Names   []string          `json:"names"`
	Classes map[string]string `json:"classes"`
}

func (c *Console) nodePools(r *http.Request) (any, error) {
	return c.explained(r, "nodepools", func(v *planned) (any, error) { return v.nodePools(), nil })
}

func (p *planned) nodePools() NodePools {
	out := NodePools{Names: []string{}, Classes: map[string]string{}}
	for _, pool := range p.NodePools {
		out.Names = append(out.Names, pool.Name)
		out.Classes[pool.Name] = pool.Spec.Template.Spec.NodeClassRef.Name
	}
	slices.Sort(out.Names)
	return out
}

func (c *Console) doctor(r *http.Request) (any, error) {
	if c.Diagnose == nil {
		return nil, &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: "the doctor checks live clusters only, not files"}
	}
	switch fresh := r.URL.Query().Get("fresh"); fresh {
	case "", "true", "false":
		return c.diagnose.get(r.Context(), fresh == "true")
	default:
		return nil, invalid("fresh", `"`+fresh+`" is neither true nor false`)
	}
}

// Decisions are recorded decisions, without alternatives and prices.
type Decisions struct {
	// From and To are the times of the recording; null if it is empty.
	From *time.Time `json:"from"`
	To   *time.Time `json:"to"`
	// Decisions are the latest first. More is how many older ones are left out.
	Decisions []recorder.Decision `json:"decisions"`
	More      int                 `json:"more"`
	// Recorded is the number of the last decision, or step of one, as in the event of that name.
	Recorded uint64 `json:"recorded"`
	// Saved is what these and those have saved together, until the end of the recording.
	Saved recorder.Saved `json:"realized"`
}

const (
	// recentDecisions sets how far back the list reaches by default: the night and the day before it.
	recentDecisions = 24 * time.Hour
	// mostDecisions bounds the list: 6 MB. A busy cluster has some thousands in a day.
	mostDecisions = 20_000
)

// recording runs a question on the recording.
func (c *Console) recording(ask func(*recorder.Recording) (any, error)) (any, error) {
	if c.Sources.Decisions == nil {
		return nil, &Problem{
			Status: http.StatusNotFound, Code: CodeNotFound,
			Message: "there is no recording: start dovetail console with --recording FILE",
		}
	}
	opened, err := c.Sources.Decisions()
	if err != nil {
		return nil, &Problem{Status: http.StatusServiceUnavailable, Code: CodeUnreadable, Message: err.Error()}
	}
	defer opened.Close() // nothing was written
	return ask(opened)
}

func (c *Console) decisions(r *http.Request) (any, error) {
	since := r.URL.Query().Get("since")
	var from time.Time
	if since != "" {
		var err error
		if from, err = time.Parse(time.RFC3339, since); err != nil {
			return nil, invalid("since", `"`+since+`" is not a time such as 2026-11-02T03:12:00Z`)
		}
	}
	return c.recording(func(recording *recorder.Recording) (any, error) {
		out := Decisions{Decisions: []recorder.Decision{}, Saved: recorder.Account(nil, c.Now())}
		first, last, ok := recording.Span()
		if !ok {
			return out, nil
		}
		out.From, out.To, out.Recorded = &first, &last, recording.Decided()
		if from.IsZero() {
			from = last.Add(-recentDecisions)
		}
		all, _ := recording.Decisions(recorder.Selection{From: from, Brief: true})
		out.Saved = recorder.Account(all, last)
		slices.Reverse(all)
		out.More = max(0, len(all)-mostDecisions)
		out.Decisions = append(out.Decisions, all[:len(all)-out.More]...)
		return out, nil
	})
}

func (c *Console) decision(r *http.Request) (any, error) {
	return c.recording(func(recording *recorder.Recording) (any, error) {
		found, err := recording.Decision(r.PathValue("id"))
		if err != nil {
			return nil, &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: err.Error()}
		}
		recording.Account(found)
		return found, nil
	})
}

// requested are the values of a parameter that can be repeated or has commas, without duplicates.
func requested(r *http.Request, name string) []string {
	var out []string
	for _, v := range r.URL.Query()[name] {
		out = append(out, strings.Split(v, ",")...)
	}
	slices.SortFunc(out, cmp.Compare[string])
	return slices.Compact(out)
}
