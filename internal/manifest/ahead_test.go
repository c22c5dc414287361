package manifest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// podWith is a pod as JSON.
func podWith(metadata, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{%s},"spec":{%s}}`, metadata, spec)
}

// mixedDocuments are documents of all sorts after a NodePool with a definition that takes long to compile: pods of equal and of
// different form, pods without a name, repeated ones, notes, and one NodePool more in their midst.
func mixedDocuments(last string) string {
	const container = `"containers":[{"name":"c"}]`
	const pool = `{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"%s"},"spec":{"template":{"spec":{"requirements":[],` +
		`"nodeClassRef":{"group":"example.com","kind":"Machine","name":"any"}}}}}`
	out := []string{fmt.Sprintf(pool, "first")}
	for i := range 200 {
		out = append(out,
			podWith(fmt.Sprintf(`"name":"plain-%d"`, i%150), fmt.Sprintf(`"containers":[{"name":"c","resources":{"requests":{"cpu":"%dm"}}}]`, i)),
			podWith(`"generateName":"unnamed-"`, container),
			podWith(fmt.Sprintf(`"name":"noted-%d"`, i), container+`,"colour":"red"`),
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"skipped-%d"}}`, i))
		if i == 100 {
			out = append(out, fmt.Sprintf(pool, "second"), fmt.Sprintf(pool, "first"))
		}
	}
	return strings.Join(append(out, last), "\n")
}

// What is read does not depend on how many processors there are, nor on when a definition is compiled.
func TestProcessorsDoNotChangeWhatIsRead(t *testing.T) {
	read := func(processors int, text string) string {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		w, err := manifest.Read([]string{"-"}, strings.NewReader(text))
		if err != nil {
			return err.Error()
		}
		var out strings.Builder
		for _, p := range w.Pods {
			fmt.Fprintln(&out, p.Name, p.UID, p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU])
		}
		for _, p := range w.NodePools {
			fmt.Fprintln(&out, p.Name)
		}
		return out.String() + strings.Join(w.Notes, "\n")
	}
	for name, last := range map[string]string{
		"no errors": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`,
		"an object": podWith(`"name":"wrong"`, `"containers":[{"name":"c","resources":{"requests":{"cpu":"-1"}}}]`),
		"a NodePool": `{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"wrong"},"spec":{"limits":{"cpu":"x"}}}
{"kind":"Pod"}`,
		"not JSON":        "---\nkind: [",
		"a List of pods":  `{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"listed"},"spec":{"containers":[{"name":"c"}]}}]}`,
		"a list of pools": `{"apiVersion":"karpenter.sh/v1","kind":"NodePoolList","items":[{"metadata":{"name":"listed"}}]}`,
	} {
		text := mixedDocuments(last)
		list := `{"kind":"List","apiVersion":"v1","items":[` + strings.ReplaceAll(text, "}\n{", "},\n{") + `]}`
		long := strings.Replace(list, "}}", "}}"+strings.Repeat(" ", 2<<20), 1)
		for form, text := range map[string]string{"documents": text, "one List": list, "a long List": long} {
			want := read(1, text)
			for _, processors := range []int{2, 4} {
				if diff := cmp.Diff(want, read(processors, text)); diff != "" {
					t.Errorf("%s, %s: with %d processors: %s", name, form, processors, diff)
				}
			}
		}
	}
}
