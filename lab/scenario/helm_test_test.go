package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// helmTestPod is the pod that the Helm chart creates for `helm test`.
func helmTestPod(t *testing.T) corev1.Pod {
	text, err := os.ReadFile(filepath.Join(labtest.Root, "tools", "chart", "testdata", "default.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "---\n") {
		var pod corev1.Pod
		if err := yaml.Unmarshal([]byte(doc), &pod); err == nil && pod.Kind == "Pod" && pod.Annotations["helm.sh/hook"] == "test" {
			return pod
		}
	}
	t.Fatal("the chart has no test")
	return corev1.Pod{}
}

// helmTest runs the command of the chart's test with the rights of its ServiceAccount, which the chart gives it.
func helmTest(ctx context.Context, t *testing.T, w *World) (output string, exit int, err error) {
	pod := helmTestPod(t)
	identity := fmt.Sprintf("--as=system:serviceaccount:%s:%s", pod.Namespace, pod.Spec.ServiceAccountName)
	said, exit, err := w.RunDovetail(ctx, append(pod.Spec.Containers[0].Args, identity)...)
	return string(said), exit, err
}

// helm test of the chart passes in a healthy cluster with the rights of the controller, and fails with the remedy where nodes cannot
// join.
func TestHelmTest(t *testing.T) {
	t.Parallel()
	binary := labtest.Binary(t)
	s := Scenario{
		Name: "helm-test", Summary: "helm test passes in a healthy cluster, and names what is wrong in another",
		Steps: []Step{
			{Name: "start the controller", Timeout: 30 * time.Second, Run: func(ctx context.Context, w *World) error { return w.StartController(ctx) }},
			installPool(manifests.Default, nil),
			{
				Name: "it passes", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					return world.Until(ctx, func() error {
						output, exit, err := helmTest(ctx, t, w)
						if err == nil && exit != 0 {
							err = fmt.Errorf("exit code %d, output %s", exit, output)
						}
						return err
					})
				},
			},
			{
				Name: "delete the node role's access entry: it fails, and its output has the remedy", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := unmapNodeRole(ctx, w); err != nil {
						return err
					}
					return world.Until(ctx, func() error {
						output, exit, err := helmTest(ctx, t, w)
						if err == nil && (exit != 1 || !strings.Contains(output, "aws eks create-access-entry")) {
							err = fmt.Errorf("exit code %d, output %s", exit, output)
						}
						return err
					})
				},
			},
		},
	}
	result := Run(
		t.Context(),
		s,
		world.Config{Dir: t.TempDir(), Executable: binary, Dovetail: filepath.Join(filepath.Dir(binary), "dovetail")},
		Silent{},
	)
	for _, step := range result.Steps {
		if !step.Passed {
			t.Errorf("step %q: %s", step.Name, step.Error)
		}
	}
}
