package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// fleetPrices are what one reader states that the nodes of a cluster cost, in $/h: all of them, and each by name where it lists them.
type fleetPrices struct {
	reader string
	all    float64
	nodes  map[string]float64
}

// onePrice compares what the readers state of a cluster with nodes that stay, live and from a file: one fleet has one price.
func (c liveCluster) onePrice(console string, nodes map[string]string) {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "now.yaml")
	if out, err := c.dovetail("snapshot", "--output-file", file).CombinedOutput(); err != nil {
		c.t.Fatalf("snapshot: %v\n%s", err, out)
	}
	want := c.topPrices("top", "--once", "--prices", "account", "-o", "json")
	if want.all <= 0 || len(want.nodes) < len(nodes) {
		c.t.Fatalf("top shows %v", want)
	}
	c.planOnePrice(file)
	got := []fleetPrices{
		c.topPrices("top -f", "--once", "--prices", "account", "-o", "json", "-f", file),
		c.assessPrices("assess", "--prices", "account", "-o", "json"),
		c.assessPrices("assess -f", "--prices", "account", "-o", "json", "-f", file),
		c.explainPrices("explain node", nodes),
		c.explainPrices("explain node -f", nodes, "-f", file),
		c.consolePrices(console),
	}
	for _, g := range got {
		if math.Abs(g.all-want.all) > 1e-9 {
			c.t.Errorf("%s: the nodes cost $%v/h, and by top $%v/h", g.reader, g.all, want.all)
		}
		for name, cost := range g.nodes {
			if math.Abs(cost-want.nodes[name]) > 1e-9 {
				c.t.Errorf("%s: node %s costs $%v/h, and by top $%v/h", g.reader, name, cost, want.nodes[name])
			}
		}
	}
}

// planOnePrice compares what plan and top state of the nodes in a file from which plan removes all nodes, by the prices of the catalog.
func (c liveCluster) planOnePrice(file string) {
	c.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	var kept []string
	for _, document := range strings.Split(string(text), "---\n") {
		if !podDocument.MatchString(document) { // without pods, each node is empty
			kept = append(kept, closedBudget.ReplaceAllString(document, "nodes: 100%"))
		}
	}
	empty := filepath.Join(c.t.TempDir(), "empty.yaml")
	if err := os.WriteFile(empty, []byte(strings.Join(kept, "---\n")), 0o600); err != nil {
		c.t.Fatal(err)
	}
	want := c.topPrices("top -f", "--once", "--prices", "catalog", "-o", "json", "-f", empty)
	var d struct {
		Consolidation struct {
			Commands []struct {
				Nodes []struct {
					Node       string  `json:"node"`
					HourlyCost float64 `json:"hourlyCost"`
				} `json:"nodes"`
			} `json:"commands"`
		} `json:"consolidation"`
	}
	c.prints(&d, "plan", "--consolidate", "-o", "json", "-f", empty)
	compared := 0
	for _, command := range d.Consolidation.Commands {
		for _, n := range command.Nodes {
			compared++
			if math.Abs(n.HourlyCost-want.nodes[n.Node]) > 1e-9 {
				c.t.Errorf("plan: node %s costs $%v/h, and by top $%v/h", n.Node, n.HourlyCost, want.nodes[n.Node])
			}
		}
	}
	if compared == 0 {
		c.t.Errorf("plan removes none of the empty nodes %v", want.nodes)
	}
}

var (
	podDocument  = regexp.MustCompile(`(?m)^kind: Pod$`)
	closedBudget = regexp.MustCompile(`nodes: "0"`)
)

// prints runs a command that prints JSON into the value.
func (c liveCluster) prints(into any, args ...string) {
	c.t.Helper()
	cmd := c.dovetail(args...)
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("%s: %v", cmd, err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		c.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// fleetDocument is the part of top's document and of the console's answer that has prices.
type fleetDocument struct {
	Cost struct {
		HourlyCost float64 `json:"hourlyCost"`
	} `json:"cost"`
	Nodes []struct {
		Name       string   `json:"name"`
		HourlyCost *float64 `json:"hourlyCost"`
	} `json:"nodes"`
	Summary *fleetDocument `json:"summary"`
}

func (d *fleetDocument) prices(reader string) fleetPrices {
	out := fleetPrices{reader: reader, all: d.Cost.HourlyCost, nodes: map[string]float64{}}
	if d.Summary != nil {
		out.all = d.Summary.Cost.HourlyCost
	}
	for _, n := range d.Nodes {
		if n.HourlyCost != nil {
			out.nodes[n.Name] = *n.HourlyCost
		}
	}
	return out
}

func (c liveCluster) topPrices(reader string, args ...string) fleetPrices {
	c.t.Helper()
	var d fleetDocument
	c.prints(&d, append([]string{"top"}, args...)...)
	return d.prices(reader)
}

func (c liveCluster) assessPrices(reader string, args ...string) fleetPrices {
	c.t.Helper()
	var d struct {
		Now struct {
			HourlyCost float64 `json:"hourlyCost"`
		} `json:"now"`
	}
	c.prints(&d, append([]string{"assess"}, args...)...)
	return fleetPrices{reader: reader, all: d.Now.HourlyCost}
}

func (c liveCluster) explainPrices(reader string, nodes map[string]string, args ...string) fleetPrices {
	c.t.Helper()
	out := fleetPrices{reader: reader, nodes: map[string]float64{}}
	for name := range nodes {
		var d struct {
			HourlyCost float64 `json:"hourlyCost"`
		}
		c.prints(&d, append([]string{"explain", "node", name, "--prices", "account", "-o", "json"}, args...)...)
		out.nodes[name] = d.HourlyCost
		out.all += d.HourlyCost
	}
	return out
}

// consolePrices queries the lab's console, which reads prices once somebody looks at it, until it has them.
func (c liveCluster) consolePrices(url string) fleetPrices {
	c.t.Helper()
	var out fleetPrices
	err := wait.PollUntilContextTimeout(c.t.Context(), 250*time.Millisecond, runTimeout, true, func(context.Context) (bool, error) {
		out = c.consoleFleet(url)
		return out.all > 0, nil
	})
	if err != nil {
		c.t.Fatalf("the console shows %v: %v", out, err)
	}
	return out
}

func (c liveCluster) consoleFleet(url string) fleetPrices {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, url+"api/v1/fleet", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	var d fleetDocument
	if err := json.NewDecoder(answer.Body).Decode(&d); err != nil || answer.StatusCode != http.StatusOK {
		c.t.Fatal(fmt.Errorf("the console answers %s: %w", answer.Status, err))
	}
	return d.prices("console")
}

// consoleAddress is that of a console in what the lab prints.
var consoleAddress = regexp.MustCompile(`http://127\.0\.0\.1:\d+/`)
