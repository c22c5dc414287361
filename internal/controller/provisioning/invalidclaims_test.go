package provisioning

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// rejectingClient is an API server with a policy that refuses claims with an underscore in a value of a requirement. It
// counts what it refuses.
func rejectingClient(f *controllertest.Fixture, refused *int) client.Client {
	return interceptor.NewClient(f.API, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			claim, ok := o.(*karpv1.NodeClaim)
			if !ok {
				return api.Create(ctx, o, opts...)
			}
			for i, r := range claim.Spec.Requirements {
				if slices.ContainsFunc(r.Values, func(v string) bool { return strings.Contains(v, "_") }) {
					if !dryRun(opts) {
						*refused++
					}
					at := field.NewPath("spec", "requirements").Index(i).Child("values")
					return apierrors.NewInvalid(
						schema.GroupKind{Group: karpv1.GroupVersion.Group, Kind: "NodeClaim"},
						claim.GenerateName,
						field.ErrorList{
							field.Invalid(at, r.Values[0], "must not have an underscore"),
						},
					)
				}
			}
			return api.Create(ctx, o, opts...)
		},
	})
}

func dryRun(opts []client.CreateOption) bool {
	o := client.CreateOptions{}
	o.ApplyOptions(opts)
	return len(o.DryRun) > 0
}

// rejectedValue is a label value that the policy refuses.
const rejectedValue = "team_a"

func selectsTeam(value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"example.com/team": value} }
}

func allowTeams(p *karpv1.NodePool) {
	p.Spec.Template.Spec.Requirements = []karpv1.Requirement{{Key: "example.com/team", Operator: corev1.NodeSelectorOpExists}}
}

func TestPodWithARejectedNodeClaimDoesNotBlockOthers(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general", allowTeams),
		pending("a", matchesSet("shop")), pending("b", matchesSet("cart")), pending("c", matchesSet("cart"), selectsTeam("blue")),
		pending("bad", matchesSet("hostile"), selectsTeam(rejectedValue)))
	refused := 0
	p := provisioner(f)
	p.Client = rejectingClient(f, &refused)
	err := p.pass(t.Context())
	if refused == 0 {
		t.Fatalf("no claim was refused: error %v, claims for %v", err, nominated(t, f))
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, nominated(t, f)); diff != "" {
		t.Errorf("claims after one pass are for (-want +got):\n%s", diff)
	}
	said := f.RecordedEvents()
	failed := slices.DeleteFunc(slices.Clone(said), func(e string) bool { return !strings.Contains(e, "PlanningFailed") })
	if len(failed) != 1 {
		t.Fatalf("events\n%s\nwant one PlanningFailed", strings.Join(said, "\n"))
	}
	for _, want := range []string{"spec.requirements[", `Invalid value: "team_a": must not have an underscore`, "Correct the node selector", "until 2026-03-14T12:01:00Z"} {
		if !strings.Contains(failed[0], want) {
			t.Errorf("event %q does not say %q", failed[0], want)
		}
	}
	// The same claim is not tried every ten seconds.
	before := refused
	for range 5 {
		f.Clock = f.Clock.Add(10 * time.Second)
		run(t, p)
	}
	if refused != before {
		t.Errorf("refused %d more times within a minute", refused-before)
	}
	if got := len(nominated(t, f)); got != 3 {
		t.Errorf("claims for %d pods, want 3: pods were planned for twice", got)
	}
	checkQuarantined(t, f, metrics.QuarantinedForClaim, 1)
}

// A claim that is refused for its pool is refused anyone who it is for: all pods get an event, and it is tried again
// before long.
func TestEveryClaimOfAPoolIsRejected(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general", allowTeams),
		pending("a", matchesSet("shop"), selectsTeam(rejectedValue)), pending("b", matchesSet("cart"), selectsTeam(rejectedValue)))
	refused := 0
	p := provisioner(f)
	p.Client = rejectingClient(f, &refused)
	if err := p.pass(t.Context()); !apierrors.IsInvalid(err) {
		t.Errorf("error %v", err)
	}
	if said := strings.Join(f.RecordedEvents(), "\n"); strings.Count(said, "PlanningFailed") != 2 {
		t.Errorf("events\n%s\nwant one for each pod", said)
	}
	p.Client = f.API
	f.Clock = f.Clock.Add(61 * time.Second)
	run(t, p)
	if diff := cmp.Diff([]string{"a", "b"}, nominated(t, f)); diff != "" {
		t.Errorf("claims are for (-want +got):\n%s", diff)
	}
}
