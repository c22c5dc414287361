package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// deployedPod is a running pod of Deployment shop/web, created so many minutes after eight.
func deployedPod(name string, minute int, more string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: shop
  uid: %[1]s
  creationTimestamp: "2026-11-02T08:%02d:00Z"
  labels: {app: web, pod-template-hash: 7c9}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-7c9, uid: rs, controller: true}]%s
spec:
  nodeName: node-1
  containers: [{name: app, image: i, resources: {requests: {cpu: "%d"}}}]
status: {phase: Running}
`, name, minute, more, minute)
}

func stateOf(t *testing.T, text string) *ClusterState {
	t.Helper()
	state, err := Read([]string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return state
}

var shopWeb = types.NamespacedName{Namespace: "shop", Name: "web"}

func podsOf(s *ClusterState) (names []string) {
	for _, p := range s.Pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// Of a Deployment that is scaled down, those pods go that its controller removes first: the cheapest to delete, then the youngest.
func TestADeploymentThatIsScaledDownKeepsThePodsThatItsControllerKeeps(t *testing.T) {
	cheap := "\n  annotations: {controller.kubernetes.io/pod-deletion-cost: \"-5\"}"
	s := stateOf(t, deployedPod("a", 1, cheap)+deployedPod("b", 2, "")+deployedPod("c", 3, ""))
	for replicas, want := range map[int][]string{3: {"a", "b", "c"}, 2: {"b", "c"}, 1: {"b"}, 0: nil} {
		next, err := s.WithReplicas(shopWeb, replicas)
		if err != nil {
			t.Fatal(err)
		}
		if got := podsOf(next); !slices.Equal(got, want) {
			t.Errorf("%d replicas: %v, want %v", replicas, got, want)
		}
		if c := next.Changes[0]; c.Was != 3 || c.Now != replicas || c.Removed != 3-replicas || c.Added != 0 {
			t.Errorf("%d replicas: %+v", replicas, c)
		}
	}
	if len(s.Pods) != 3 {
		t.Errorf("the state has changed: %v", podsOf(s))
	}
}

// New pods are as the newest one, have no node, and wait for one.
func TestADeploymentThatIsScaledUpHasPodsLikeItsNewest(t *testing.T) {
	s := stateOf(t, deployedPod("a", 1, "")+deployedPod("b", 2, ""))
	next, err := s.WithReplicas(shopWeb, 4)
	if err != nil {
		t.Fatal(err)
	}
	if got := podsOf(next); !slices.Equal(got, []string{"a", "b", "web-7c9-0", "web-7c9-1"}) {
		t.Fatalf("the pods are %v", got)
	}
	made := next.Pods[3]
	if made.Spec.NodeName != "" || made.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" || made.Namespace != "shop" ||
		made.Labels["pod-template-hash"] != "7c9" || made.OwnerReferences[0].UID != "rs" || made.Status.Conditions[0].Reason != "Unschedulable" {
		t.Errorf("a new pod: %+v", made)
	}
	if list := next.Deployments(); !slices.Equal(list, []Deployment{{"shop", "web", 4}}) {
		t.Errorf("the Deployments are %v", list)
	}
}

// A Deployment from a file that has no replicas can be scaled up, since its template is known.
func TestADeploymentWithoutPodsIsScaledByItsTemplate(t *testing.T) {
	s := stateOf(t, `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: i, resources: {limits: {cpu: "3"}}}]}
`)
	next, err := s.WithReplicas(shopWeb, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(next.Pods) != 2 || next.Pods[0].Spec.Containers[0].Resources.Requests.Cpu().String() != "3" {
		t.Errorf("the pods are %+v", next.Pods)
	}
	unknown := (*UnknownDeploymentError)(nil)
	if _, err := s.WithReplicas(types.NamespacedName{Namespace: "shop", Name: "wob"}, 2); !errors.As(err, &unknown) {
		t.Errorf("a Deployment that is not there: %v", err)
	}
}
