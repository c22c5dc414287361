package provisioning

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestClaimHasThePoolsSettings(t *testing.T) {
	for _, c := range []struct {
		name  string
		pool  func(*karpv1.NodePool)
		check func(t *testing.T, claim *karpv1.NodeClaim)
	}{
		{"the pool's grace period", func(p *karpv1.NodePool) {
			p.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 223 * time.Hour}
		}, func(t *testing.T, claim *karpv1.NodeClaim) {
			if got := claim.Spec.TerminationGracePeriod; got == nil || got.Duration != 223*time.Hour {
				t.Errorf("grace period %v", got)
			}
		}},
		{"none", func(*karpv1.NodePool) {}, func(t *testing.T, claim *karpv1.NodeClaim) {
			if got := claim.Spec.TerminationGracePeriod; got != nil {
				t.Errorf("grace period %v", got)
			}
		}},
		{"the template's annotations", func(p *karpv1.NodePool) {
			p.Spec.Template.Annotations = map[string]string{"example.com/note": "1"}
		}, func(t *testing.T, claim *karpv1.NodeClaim) {
			if got := claim.Annotations["example.com/note"]; got != "1" {
				t.Errorf("annotations %v", claim.Annotations)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general", c.pool), pending("a"))
			run(t, provisioner(f))
			got := claims(t, f.API)
			if len(got) != 1 {
				t.Fatalf("%d claims", len(got))
			}
			c.check(t, &got[0])
		})
	}
}

// A claim has the pool that was planned with, hash included. Were it stamped with the hash of a pool
// that has changed since, nobody would see that the node has drifted.
func TestPoolChangedBeforeTheClaimIsCreated(t *testing.T) {
	pool := controllertest.Pool("general", func(p *karpv1.NodePool) { p.Spec.Template.Labels = map[string]string{"version": "1"} })
	planned, err := pool.Hash()
	if err != nil {
		t.Fatal(err)
	}
	f := controllertest.New(t, controllertest.Class(), pool, pending("a"))
	p := provisioner(f)
	s, err := p.State.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan := schedule.Solve(s, schedule.Budget{})
	changed := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	if !f.Get(changed) {
		t.Fatal("no pool")
	}
	changed.Spec.Template.Labels = map[string]string{"version": "2"}
	f.Do(f.API.Update(t.Context(), changed))
	if _, err := p.launch(t.Context(), plan.Launches, s); err != nil {
		t.Fatal(err)
	}
	got := claims(t, f.API)
	if len(got) != 1 || got[0].Annotations[karpv1.AnnotationNodePoolHash] != planned || got[0].Labels["version"] != "1" {
		t.Errorf("claims %+v, want one of version 1 with hash %s", got, planned)
	}
}

// Binding is the work of the scheduler.
func TestPodsAreNeverBound(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Class(),
		controllertest.Pool("general"),
		controllertest.Claim("c", controllertest.Initialized),
		controllertest.ReadyNode(
			"c",
			func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1") },
		),
		pending("fits"),
		pending("needs-a-node"),
	)
	before := &corev1.PodList{}
	f.Do(f.API.List(t.Context(), before))
	p := provisioner(f)
	var written []string
	p.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, claim := o.(*karpv1.NodeClaim); !claim {
				written = append(written, o.GetName())
			}
			return api.Create(ctx, o, opts...)
		},
		SubResourceCreate: func(_ context.Context, _ client.Client, resource string, o client.Object, _ client.Object,
			_ ...client.SubResourceCreateOption,
		) error {
			written = append(written, o.GetName()+"/"+resource)
			return nil
		},
	})
	for range 2 {
		run(t, p)
	}
	after := &corev1.PodList{}
	f.Do(f.API.List(t.Context(), after))
	if diff := cmp.Diff(before, after); diff != "" || len(written) > 0 {
		t.Errorf("written %v, pods (-before +after):\n%s", written, diff)
	}
	if got := len(claims(t, f.API)); got != 2 {
		t.Errorf("%d claims, want the one that was there and one more", got)
	}
}

// A claim names the drivers that its node has to wait for.
func TestClaimOfDrivers(t *testing.T) {
	for _, tt := range []struct {
		drivers []string
		want    string
		there   bool
	}{{nil, "", false}, {[]string{"a.example.com", "b.example.com"}, "a.example.com,b.example.com", true}} {
		claim, err := Claim(
			&schedule.Launch{Pool: controllertest.Pool("general"), InstanceTypes: engine.Types(), Drivers: tt.drivers},
			engine.World(nil).Labels,
		)
		if err != nil {
			t.Fatal(err)
		}
		if got, there := claim.Annotations[karpv1.AnnotationRequestedDRADrivers]; got != tt.want || there != tt.there {
			t.Errorf("%q, %t; want %q, %t", got, there, tt.want, tt.there)
		}
	}
}

// Many types would make each write of the claim expensive, and a launch requests but the cheapest.
func TestClaimNamesTheCheapestTypes(t *testing.T) {
	var types []*catalog.InstanceType
	for i := range maxNamedTypes + 1 {
		types = append(types, engine.Type(fmt.Sprintf("t%03d", i), float64(1+i), "cpu", "1"))
	}
	flexible := func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpv1.Requirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpExists, MinValues: new(1)}}
	}
	for _, tt := range []struct {
		name string
		pool *karpv1.NodePool
		want int
	}{
		{"no minValues", controllertest.Pool("general"), maxNamedTypes},
		{"minValues, which count the values of all types", controllertest.Pool("general", flexible), maxNamedTypes + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := engine.World([]snapshot.Pool{{NodePool: tt.pool, InstanceTypes: types}}, engine.Pod("a", engine.Requests("cpu", "100m")))
			plan := schedule.Solve(s, schedule.Budget{})
			if len(plan.Launches) != 1 {
				t.Fatalf("%d launches, rejected %v", len(plan.Launches), plan.Rejected)
			}
			claim, err := Claim(&plan.Launches[0], s.Labels)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(claim.Spec.Requirements, func(r karpv1.Requirement) bool { return r.Key == corev1.LabelInstanceTypeStable })
			if i < 0 {
				t.Fatalf("requirements %v", claim.Spec.Requirements)
			}
			if names := claim.Spec.Requirements[i].Values; len(names) != tt.want || names[0] != "t000" || slices.Max(names) != names[tt.want-1] {
				t.Errorf("%d types: %v", len(names), names)
			}
		})
	}
}
