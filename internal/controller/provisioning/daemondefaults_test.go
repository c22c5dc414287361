package provisioning

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// A DaemonSet that gets its requests from a LimitRange, the LimitRange, and a pod are applied at once: in whatever order they are seen
// before the pass, the one node that the pod gets has room for both pods. On a node that exists already, the DaemonSet controller makes a pod at
// once, without the defaults if the LimitRange does not exist yet.
func TestADaemonSetWithDefaultsAndAPodAppliedAtOnce(t *testing.T) {
	for _, order := range []string{"DLP", "DPL", "LDP", "LPD", "PDL", "PLD"} {
		for _, full := range []bool{false, true} {
			name := order
			if full {
				name += " beside a full node"
			}
			t.Run(name, func(t *testing.T) {
				f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"))
				if full {
					full := controllertest.Pod("full", "node-old", func(p *corev1.Pod) { p.Spec.Containers = containers("2") })
					for _, o := range []client.Object{controllertest.Claim("old", controllertest.Initialized), controllertest.ReadyNode("old"), full} {
						f.Do(f.API.Create(f.Context(), o))
					}
				}
				p := provisioner(f)
				for i, step := range order {
					switch step {
					case 'D':
						f.Do(f.API.Create(f.Context(), agents()))
						if full {
							f.Do(f.API.Create(f.Context(), agentOn("node-old", strings.Contains(order[:i], "L"))))
						}
					case 'L':
						f.Do(f.API.Create(f.Context(), defaults("1")))
					case 'P':
						f.Do(f.API.Create(f.Context(), pending("web")))
					}
					if _, err := p.State.Snapshot(f.Context()); err != nil { // as passes of others do meanwhile
						t.Fatal(err)
					}
				}
				run(t, p)
				run(t, p)
				var sizes []string
				for _, c := range claims(t, f.API) {
					if c.Name != "old" {
						sizes = append(sizes, c.Spec.Resources.Requests.Cpu().String())
					}
				}
				if len(sizes) != 1 || sizes[0] != "1500m" {
					t.Errorf("nodes for %v CPUs are launched, want one for 1500m", sizes)
				}
			})
		}
	}
}

func containers(cpu string) []corev1.Container {
	c := corev1.Container{Name: "c"}
	if cpu != "" {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	return []corev1.Container{c}
}

// agents is a DaemonSet without requests.
func agents() *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "agent", UID: "agent"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	set.Spec.Template.Labels = map[string]string{"app": "agent"}
	set.Spec.Template.Spec.Containers = containers("")
	return set
}

// agentOn is the DaemonSet's pod on a node; the API server has given it the defaults if they existed.
func agentOn(node string, defaulted bool) *corev1.Pod {
	return controllertest.Pod("agent", node, controllertest.OwnedByDaemonSet, func(p *corev1.Pod) {
		p.OwnerReferences[0].Controller = new(true)
		p.Spec.Containers = containers("")
		if defaulted {
			p.Spec.Containers = containers("1")
		}
	})
}

// defaults is a LimitRange that gives containers without requests these CPUs.
func defaults(cpu string) *corev1.LimitRange {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "defaults"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}},
	}}
}
