package podreport_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/types"
	sigsyaml "sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/podreport"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

var update = flag.Bool("update", false, "write the texts of the reports anew")

const goldens = "testdata/planted.txtar"

// market describes what every class launches.
type market []*catalog.InstanceType

func (m market) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) { return m, nil }

// types are the fixture's, one for arm64 and one with a GPU.
func types0() market {
	return append(
		enginetest.Types(),
		enginetest.WithLabel(enginetest.Type("a.large", 0.15, "cpu", "4", "memory", "16Gi"), enginetest.Arch, "arm64"),
		enginetest.Type("g.large", 1.20, "cpu", "4", "memory", "16Gi", "nvidia.com/gpu", "1"),
	)
}

// without is the market without capacity in a zone or of a capacity type.
func without(what string) market {
	m := types0()
	for _, t := range m {
		for i := range t.Offerings {
			if o := &t.Offerings[i]; o.Zone == what || o.CapacityType == what {
				o.Available = false
			}
		}
	}
	return m
}

// view reads objects as a command does.
func view(t *testing.T, objects string, m market) *inspect.View {
	t.Helper()
	v, err := inspect.Files(manifest.Input{Paths: []string{"-"}, Stdin: strings.NewReader(objects)}, inspect.Config{
		Prices: func(*manifest.ClusterState) (inspect.Prices, error) {
			return inspect.Prices{Catalog: m, From: "the test"}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func explain(t *testing.T, objects string, m market) *podreport.Report {
	t.Helper()
	r, err := podreport.Explain(view(t, objects, m), types.NamespacedName{Namespace: "shop", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// documents decodes a file of objects.
func documents(t *testing.T, objects string) (out []map[string]any) {
	t.Helper()
	for text := range strings.SplitSeq(objects, "\n---\n") {
		var o map[string]any
		if err := sigsyaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// applied applies a change to the objects, as a person would.
func applied(t *testing.T, objects string, c *podreport.Change) string {
	t.Helper()
	all := documents(t, objects)
	for _, e := range c.Edits {
		if e.Action == podreport.Create {
			all = append(all, documents(t, e.Manifest)...)
			continue
		}
		var kept []map[string]any
		found := false
		for _, o := range all {
			meta, _ := o["metadata"].(map[string]any) // the header of a snapshot has none
			namespace, _ := meta["namespace"].(string)
			if o["kind"] != e.Kind || meta["name"] != e.Name || namespace != e.Namespace {
				kept = append(kept, o)
				continue
			}
			found = true
			if e.Action == podreport.Delete {
				continue
			}
			kept = append(kept, edited(t, o, e))
		}
		if all = kept; !found && e.Action != podreport.Resolve {
			t.Fatalf("there is no %s to change", e.Object)
		}
	}
	var out []string
	for _, o := range all {
		text, err := sigsyaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return strings.Join(out, "\n---\n")
}

// edited is an object after an edit. What a condition reports is resolved for all objects with conditions.
func edited(t *testing.T, o map[string]any, e podreport.Edit) map[string]any {
	t.Helper()
	before, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	operations, err := json.Marshal(e.Patch)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		t.Fatalf("the patch of %s does not apply: %v", e.Object, err)
	}
	var out map[string]any
	if err := json.Unmarshal(after, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// resolved is the objects with every condition True, and static pools as pools that may launch one node more.
func resolved(objects string) string {
	objects = strings.ReplaceAll(objects, `status: "False"`, `status: "True"`)
	return strings.ReplaceAll(objects, "replicas: 2", "weight: 1")
}

func TestPlantedSituations(t *testing.T) {
	want := map[string]string{}
	archive, err := txtar.ParseFile(goldens)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if archive != nil {
		for _, f := range archive.Files {
			want[f.Name] = string(f.Data)
		}
	}
	out := &txtar.Archive{Comment: []byte("What explain prints about a pod in each planted situation.\n\n")}
	for _, p := range planted() {
		t.Run(p.name, func(t *testing.T) {
			if p.market == nil {
				p.market = types0()
			}
			r := explain(t, p.objects, p.market)
			var text bytes.Buffer
			if err := r.Text(&text); err != nil {
				t.Fatal(err)
			}
			out.Files = append(out.Files, txtar.File{Name: p.name, Data: bytes.Clone(text.Bytes())})
			if !*update && want[p.name] != text.String() {
				t.Errorf("the report has changed (-update writes it):\n%s\nwant:\n%s", &text, want[p.name])
			}
			check(t, p, r)
			narrow(t, text.String())
		})
	}
	if !*update {
		return
	}
	if err := os.WriteFile(goldens, txtar.Format(out), 0o600); err != nil {
		t.Fatal(err)
	}
}

// check compares cause and change, and plans the objects with the change applied to them.
func check(t *testing.T, p situation, r *podreport.Report) {
	t.Helper()
	if !strings.HasPrefix(r.Cause, "shop/web ") || !strings.Contains(r.Cause, p.cause) {
		t.Errorf("the first line is %q, want %q in it", r.Cause, p.cause)
	}
	if p.change == "" {
		if r.Change != nil {
			t.Errorf("the change %q for a pod that needs none", r.Change.Summary)
		}
		return
	}
	if r.Change == nil {
		t.Fatalf("no change, want %q: %+v", p.change, r.Search)
	}
	if !strings.Contains(r.Change.Summary, p.change) {
		t.Errorf("the change is %q, want %q", r.Change.Summary, p.change)
	}
	for _, c := range append([]podreport.Change{*r.Change}, r.Alternatives...) {
		after := explain(t, resolved(applied(t, p.objects, &c)), p.market)
		if after.Node == nil || after.State == podreport.Unschedulable {
			t.Errorf("with %q applied: %s", c.Summary, after.Cause)
		}
	}
}

// narrow checks that only commands are wider than a terminal.
func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		plain := !strings.HasPrefix(strings.TrimSpace(line), "kubectl ") && !strings.HasPrefix(strings.TrimSpace(line), "{")
		if plain && len(strings.TrimRight(line, "\n")) > 80 && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}

func TestJSONHasLists(t *testing.T) {
	p := planted()[0]
	var out bytes.Buffer
	if err := explain(t, p.objects, types0()).JSON(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), ": null") {
		t.Errorf("a list is null: %s", &out)
	}
}

// The search is bounded: a large cluster with many pods of one workload is explained, too.
func TestManyPods(t *testing.T) {
	var b strings.Builder
	b.WriteString(join(pool("general", `{key: topology.kubernetes.io/zone, operator: In, values: [z1]}`, ""), pod("web", `nodeSelector: {topology.kubernetes.io/zone: z2}`)))
	b.WriteString("\n---\n" + deployment("batch", 5000))
	r := explain(t, b.String(), types0())
	if r.Change == nil || r.Search.Plans > 150 {
		t.Fatalf("change %v after %+v", r.Change, r.Search)
	}
}

func deployment(name string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: shop}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: main, image: main, resources: {requests: {cpu: 100m}}}]}`, name, replicas)
}
