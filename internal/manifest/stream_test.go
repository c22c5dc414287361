package manifest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// items returns pods as JSON, the last after some megabytes.
func items(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-%06d","annotations":{"fill":%q}}}`, i, strings.Repeat("é", 500))
	}
	return out
}

// A List that is larger than what is read at once gives the same as a small one, wherever its kind is.
func TestLargeListsAreReadAsSmallOnes(t *testing.T) {
	const n = 4000
	all := strings.Join(items(n), ",\n")
	for name, text := range map[string]string{
		"kind first":        `{"kind":"List","apiVersion":"v1","metadata":{},"items":[` + all + `]}`,
		"kind last":         `{"apiVersion":"v1","items":[` + all + `],"kind":"List","metadata":{"resourceVersion":""}}`,
		"of one kind":       `{"kind":"PodList","apiVersion":"v1","items":[` + strings.ReplaceAll(all, `"apiVersion":"v1","kind":"Pod",`, "") + `]}`,
		"lists in a list":   `{"kind":"List","apiVersion":"v1","items":[{"kind":"List","apiVersion":"v1","items":[` + all + `]}]}`,
		"one by one":        strings.Join(items(n), "\n"),
		"between documents": strings.Join(items(10), "\n") + `{"kind":"List","apiVersion":"v1","items":[` + all + `]}` + "\n---\n" + items(11)[10],
	} {
		t.Run(name, func(t *testing.T) {
			w, err := manifest.Read([]string{"-"}, strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if len(w.Pods) != n || w.Pods[n-1].Name != "p-003999" {
				t.Errorf("%d pods, the last is %s", len(w.Pods), w.Pods[len(w.Pods)-1].Name)
			}
		})
	}
}

// Errors name the document, the item, and where text is not JSON, the line.
func TestErrorsInLargeFilesNameTheirPlace(t *testing.T) {
	good := items(4000)
	list := func(items ...string) string {
		return `{"kind":"List","apiVersion":"v1","items":[` + strings.Join(items, ",\n") + "]}"
	}
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"an invalid item", list(append(slices.Clone(good), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"A"}}`)...), []string{
			`stdin:1: item 4001: Pod A: metadata.name: Invalid value: "A"`,
		}},
		{"a wrong type", list(append(slices.Clone(good), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"priority":"x"}}`)...), []string{
			"stdin:1: item 4001: Pod a: spec.priority: is a string, which cannot be int32",
		}},
		{"two of them", "\n" + list(append(slices.Clone(good), `5`, `{"kind":"Pod"}`)...), []string{
			"stdin:2: item 4001: is not an object", "stdin:2: item 4002: kind and apiVersion are needed",
		}},
		{"a truncated file", strings.ToValidUTF8(list(good...)[:4_000_000], ""), []string{"stdin:1: the file ends in line ", "is the file complete?"}},
		{"a truncated object", strings.ToValidUTF8(good[0][:300], ""), []string{"stdin:1: the file ends in line 1, "}},
		{"no JSON any more", list(append(slices.Clone(good), "oops")...), []string{`stdin:1: line 4001: not valid JSON at "oops]}"`}},
		{"a comma too many", list(append(slices.Clone(good), "")...), []string{`stdin:1: line 4001: not valid JSON at "]}"`}},
		{"items twice", strings.TrimSuffix(list(good...), "}") + `,"items":[]}`, []string{"stdin:1: field \"items\" is set twice"}},
		{"nested deep", list(append(slices.Clone(good), strings.Repeat("[", 20_000))...), []string{"line 4001: values are nested more than 10000 deep"}},
		{"not UTF-8", list(append(slices.Clone(good), "\"\xff\"")...), []string{"stdin: is not text in UTF-8"}},
		{"a cut character", list(good...)[:4_000_000] + "\xc3", []string{"stdin: is not text in UTF-8"}},
		{"items that are none", `{"kind":"List","apiVersion":"v1","items":{}}`, []string{"stdin:1: List: items: is not a list"}},
		{"a header after objects", list(good...) + `{"apiVersion":"dovetail.sh/v1","kind":"Snapshot","takenAt":"2026-08-21T12:00:00Z"}`, []string{
			"stdin:4000: Snapshot: comes after other objects",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := manifest.Read([]string{"-"}, strings.NewReader(tt.text))
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %.400v, want %q", err, want)
				}
			}
		})
	}
}

// endless repeats a text, up to a total size.
type endless struct {
	text      []byte
	at, total int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.total <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) {
		copied := copy(p[n:], e.text[e.at:])
		n, e.at = n+copied, (e.at+copied)%len(e.text)
	}
	e.total -= n
	return n, nil
}

// The items of a List that are no objects for a plan take no memory, however many they are.
func TestAListIsNotKeptInMemory(t *testing.T) {
	const size = 200 << 20
	item := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"a":"` + strings.Repeat("x", 900) + "\"}},\n")
	begin := strings.NewReader(`{"kind":"List","apiVersion":"v1","items":[`)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err := manifest.Read([]string{"-"}, io.MultiReader(begin, &endless{text: bytes.Repeat(item, 1000), total: size}))
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "is the file complete?") {
		t.Errorf("error %v, want that the file is truncated", err)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > size/2 {
		t.Errorf("the heap grew by %d MiB while reading %d MiB", grown>>20, size>>20)
	}
}

// Equal pods share what they refer to. Nothing that plans may change it: otherwise one pod would change the others.
func TestPlansDoNotChangePods(t *testing.T) {
	for _, kind := range []string{"diverse", "replicas", "prefs", "volumes"} {
		t.Run(kind, func(t *testing.T) {
			list, err := workload.Benchmark{Kind: kind, Pods: 300, Pool: "open", Seed: 3}.Manifests()
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			w := stdin(t, string(data))
			before := make([]*corev1.Pod, len(w.Pods))
			for i, p := range w.Pods {
				before[i] = p.DeepCopy()
			}
			s := workload.Snapshot([]snapshot.Pool{workload.GeneralPool("general", workload.SyntheticTypes(54, "on-demand"))}, w.Pods, true)
			schedule.Solve(s, schedule.DefaultBudget())
			for i, p := range w.Pods {
				if got, want := fmt.Sprintf("%#v", p.Spec), fmt.Sprintf("%#v", before[i].Spec); len(got) != len(want) {
					t.Fatalf("the plan changed pod %s", p.Name)
				}
				if a, b := jsonOf(t, p), jsonOf(t, before[i]); a != b {
					t.Fatalf("the plan changed pod %s:\n%s\n%s", p.Name, b, a)
				}
			}
		})
	}
}

func jsonOf(t *testing.T, o any) string {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Completing one pod does not change another that equals it in the file.
func TestEqualPodsAreCompletedAsOthers(t *testing.T) {
	pod := func(name, more string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","labels":{"app":"a"}},"spec":{"hostNetwork":true,` +
			`"runtimeClassName":"r","containers":[{"name":"c","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"2"}}}]}` + more + "}\n"
	}
	const conditions = `,"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulerError"},{"type":"Ready","status":"False"}]}`
	w := stdin(t, pod("a", conditions)+pod("b", conditions)+pod("c", "")+
		`{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"r"},"handler":"x","overhead":{"podFixed":{"cpu":"1"}},`+
		`"scheduling":{"nodeSelector":{"x":"y"},"tolerations":[{"key":"t","operator":"Exists"}]}}`)
	for _, p := range w.Pods {
		cpu := snapshot.Requests(p)[corev1.ResourceCPU]
		ready := 0
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				ready++
			}
		}
		if cpu.String() != "3" || len(p.Spec.Tolerations) != 1 || p.Spec.NodeSelector["x"] != "y" || !snapshot.Provisionable(p) ||
			p.Spec.Containers[0].Ports[0].HostPort != 80 || (ready == 1) != (p.Name != "c") {
			t.Errorf("%s: %s", p.Name, jsonOf(t, p))
		}
	}
}
