package manifest

import (
	"bytes"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/cel"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// notInPlans holds what the controller watches and no plan depends on.
var notInPlans = map[string]string{
	"events":            "it publishes them",
	"resourcequotas":    "the controller has applied them to the replicas in the status of a buffer",
	"volumeattachments": "it waits for them before it terminates an instance",
}

// resourceOf is the name of a kind in rules of roles.
func resourceOf(t reflect.Type, k kind) string {
	gv, err := schema.ParseGroupVersion(k.apiVersion)
	if err != nil {
		return t.String()
	}
	plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(k.kind))
	return strings.Replace(plural.Resource, "overlaies", "overlays", 1) // the guess is for words like policy
}

// What the controller watches is what its decisions depend on. A snapshot of a cluster, and every command that shows one, must have it,
// or they contradict the controller.
func TestSnapshotsHaveAllThatTheControllerWatches(t *testing.T) {
	names := map[reflect.Type]string{}
	for k, o := range prototypes() {
		names[reflect.TypeOf(o)] = resourceOf(reflect.TypeOf(o), k)
	}
	var dumpedNames []string
	for _, list := range dumped() {
		items, found := reflect.TypeOf(list).Elem().FieldByName("Items")
		if !found {
			t.Fatalf("%T has no items", list)
		}
		name := names[reflect.PointerTo(items.Type.Elem())]
		if name == "" {
			t.Errorf("a snapshot has %s, which no file can have: see prototypes", items.Type)
		}
		dumpedNames = append(dumpedNames, name)
	}
	for _, watched := range watchedResources(t) {
		if !slices.Contains(dumpedNames, watched) && notInPlans[watched] == "" {
			t.Errorf("the controller watches %s: a snapshot must have it, or notInPlans must say why no plan depends on it", watched)
		}
	}
	config := cluster.Config{Devices: &cel.Cache{}}
	config.Settings.DefaultSpread = make([]corev1.TopologySpreadConstraint, 1)
	for _, o := range config.SnapshotKinds() {
		if name := names[reflect.TypeOf(o)]; !slices.Contains(dumpedNames, name) {
			t.Errorf("the controller plans with %T: a snapshot must have it", o)
		}
	}
}

// watchedResources returns what the controller's role may watch.
func watchedResources(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(document, &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" || role.Name != "dovetail" {
			continue
		}
		for _, rule := range role.Rules {
			if !slices.Contains(rule.Verbs, "watch") {
				continue
			}
			for _, name := range rule.Resources {
				if !strings.Contains(name, "/") {
					out = append(out, name)
				}
			}
		}
	}
	if len(out) < 20 {
		t.Fatalf("the role watches only %v", out)
	}
	return out
}
