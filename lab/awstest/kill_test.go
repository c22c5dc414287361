package awstest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// killableTransport is the connection of a process that is killed at a certain call that changes the account: before
// it leaves, or after it took effect. Nothing gets through afterwards. Calls that only read are not
// counted: a process that dies there leaves the same account as one that dies at the next change.
type killableTransport struct {
	afterward bool

	mu      sync.Mutex
	changes int // up to and with the last one
	dead    bool
}

var errProcessKilled = errors.New("the process was killed")

func (m *killableTransport) Do(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errProcessKilled
	}
	change, err := changes(r)
	if err != nil {
		return nil, err
	}
	if change {
		m.changes--
	}
	if m.changes > 0 || !change {
		return http.DefaultClient.Do(r)
	}
	m.dead = true
	if m.afterward {
		if response, err := http.DefaultClient.Do(r); err == nil {
			_ = response.Body.Close()
		}
	}
	return nil, errProcessKilled
}

// changes reports whether a call changes the account, by the action in a query protocol's body. The
// adapter only reads from services with other protocols.
func changes(r *http.Request) (bool, error) {
	if r.Body == nil {
		return false, nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return false, err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	form, err := url.ParseQuery(string(text))
	if err != nil {
		return false, nil // no query protocol
	}
	action := form.Get("Action")
	return action != "" && !slices.ContainsFunc([]string{"Describe", "Get", "List"}, func(verb string) bool {
		return strings.HasPrefix(action, verb)
	}), nil
}

// launchUntilKilled runs a process from its start through a launch, and reports whether it came to the end.
func launchUntilKilled(t *testing.T, w *world, m *killableTransport, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) bool {
	t.Helper()
	cfg := w.config("uid-1")
	cfg.AWS.HTTPClient = m
	cfg.AWS.Retryer = func() awssdk.Retryer { return awssdk.NopRetryer{} } // the dead do not try again
	c, err := newCloud(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if c.Preflight(t.Context(), ekscluster.APIServer{CA: w.ca}) != nil {
		return false
	}
	r := c.ResolveNodeClass(t.Context(), class)
	if r.Err != nil {
		return false
	}
	written := class.DeepCopy() // the status is lost with the process
	written.Status = r.Status
	_, err = c.Launch(t.Context(), claim, written)
	return err == nil
}

// A controller that is killed at any change it makes, before or after its effect, leaves a world in which the next
// one has, in the end, one instance for the claim, and one instance profile for the class.
func TestKilledAtEveryChange(t *testing.T) {
	for _, afterward := range []bool{false, true} {
		for _, visible := range []bool{false, true} {
			finished := false
			for n := 1; !finished; n++ {
				name := fmt.Sprintf("change %d, effect %v, visible %v", n, afterward, visible)
				t.Run(name, func(t *testing.T) {
					w := newWorld(t)
					class, general := nodeClass("default"), claim("general-1", onDemand, in(corev1.LabelInstanceTypeStable, "m5.large"))
					finished = launchUntilKilled(t, w, &killableTransport{changes: n, afterward: afterward}, class, general)
					if visible {
						w.advancePastDelays()
					}
					c := w.start(w.config("uid-1"))
					resolve(t, c, class)
					got, err := c.Launch(t.Context(), general, class)
					if err != nil {
						t.Fatal(err)
					}
					if living := w.runningInstances(); len(living) != 1 || got.ProviderID != "aws:///"+living[0].Zone+"/"+living[0].ID {
						t.Errorf("%d instances, the claim has %s", len(living), got.ProviderID)
					}
					if n := w.called("CreateInstanceProfile"); n != 1 {
						t.Errorf("%d instance profiles were made", n)
					}
				})
				if n > 10 {
					t.Fatal("a launch makes more than 10 changes")
				}
				if finished && n < 4 {
					t.Fatal("a launch makes a profile, a template and a fleet at least")
				}
			}
		}
	}
}

func TestLostAnswerOfCreateFleet(t *testing.T) {
	for _, tc := range []struct {
		name string
		// next is the process that tries again.
		next func(w *world, c *cloud) *cloud
	}{
		{"same process", func(_ *world, c *cloud) *cloud { return c }},
		{"new process", func(w *world, _ *cloud) *cloud { return w.start(w.config("uid-1")) }},
		{"same process, instance visible", func(w *world, c *cloud) *cloud { w.advancePastDelays(); return c }},
		{"new process, instance visible", func(w *world, _ *cloud) *cloud { w.advancePastDelays(); return w.start(w.config("uid-1")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.start(w.config("uid-1"))
			class, general := nodeClass("default"), claim("general-1", onDemand)
			resolve(t, c, class)
			w.Sim.Inject(
				awsim.Fault{
					Service:     "ec2",
					Action:      "CreateFleet",
					AfterEffect: true,
					Error:       protocol.Errorf("InternalError", "try again").WithStatus(500),
				},
			)
			if _, err := c.Launch(t.Context(), general, class); err == nil {
				t.Fatal("a lost answer was read")
			}
			if n := len(w.runningInstances()); n != 1 {
				t.Fatalf("the call without answer left %d instances", n)
			}
			got, err := tc.next(w, c).Launch(t.Context(), general, class)
			if err != nil {
				t.Fatal(err)
			}
			if living := w.runningInstances(); len(living) != 1 || got.ProviderID != "aws:///"+living[0].Zone+"/"+living[0].ID {
				t.Errorf("%d instances, the claim has %s", len(living), got.ProviderID)
			}
		})
	}
}

// The successor of a killed controller queries with other parameters, since the class has lost a subnet
// meanwhile. EC2 rejects the token; the instance shows after a while and is adopted.
func TestParametersChangedAfterALostAnswer(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class, general := nodeClass("default"), claim("general-1", onDemand)
	resolve(t, c, class)
	w.Sim.Inject(
		awsim.Fault{
			Service:     "ec2",
			Action:      "CreateFleet",
			AfterEffect: true,
			Error:       protocol.Errorf("InternalError", "try again").WithStatus(500),
		},
	)
	_, _ = c.Launch(t.Context(), general, class)
	c = w.start(w.config("uid-1"))
	class.Status.Subnets = class.Status.Subnets[1:]
	_, err := c.Launch(t.Context(), general, class)
	var create *cloudprovider.CreateError
	if !errors.As(err, &create) || create.Reason != "LaunchOutcomeUnknown" {
		t.Fatalf("want to wait, got %v", err)
	}
	w.advancePastDelays()
	got, err := c.Launch(t.Context(), general, class)
	if living := w.runningInstances(); err != nil || len(living) != 1 || got.ProviderID != "aws:///"+living[0].Zone+"/"+living[0].ID {
		t.Errorf("%d instances, the claim has %q, %v", len(living), got.ProviderID, err)
	}
}

// A claim with a launch that was rejected outright is launched as soon as the rejection's cause is gone.
func TestRefusedLaunch(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class, general := nodeClass("default"), claim("general-1", onDemand)
	resolve(t, c, class)
	w.Sim.Inject(
		awsim.Fault{
			Service: "ec2",
			Action:  "CreateFleet",
			Error:   protocol.Errorf("UnauthorizedOperation", "You are not authorized to perform this operation."),
		},
	)
	_, err := c.Launch(t.Context(), general, class)
	var create *cloudprovider.CreateError
	if !errors.As(err, &create) || create.Reason != "Unauthorized" {
		t.Fatalf("want reason Unauthorized, got %v", err)
	}
	class.Status.Subnets = class.Status.Subnets[1:]
	if _, err := c.Launch(t.Context(), general, class); err != nil || len(w.runningInstances()) != 1 {
		t.Errorf("%d instances, %v", len(w.runningInstances()), err)
	}
}

// An instance that nobody wrote down is found by its claim, for anyone who stops the claim.
func TestFindByClaim(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class, general := nodeClass("default"), claim("general-1", onDemand)
	resolve(t, c, class)
	if _, err := c.Launch(t.Context(), general, class); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(instance.VisibleWithin)
	next := w.start(w.config("uid-1"))
	found, err := next.FindByClaim(t.Context(), general)
	if err != nil || len(found) != 1 {
		t.Fatalf("found %d, %v", len(found), err)
	}
	other := claim("general-2")
	if others, err := next.FindByClaim(t.Context(), other); err == nil {
		t.Errorf("found %d for a claim that the process before may have launched just now", len(others))
	}
	other.Annotations = map[string]string{karpv1.AnnotationLaunch: cloudprovider.Unlaunched}
	if others, err := next.FindByClaim(t.Context(), other); err != nil || len(others) != 0 {
		t.Errorf("found %d for a claim that nobody has launched, %v", len(others), err)
	}
	if err := next.Terminate(t.Context(), destroytest.Permit(found[0].ProviderID)); err != nil {
		t.Fatal(err)
	}
	if found, err := next.FindByClaim(t.Context(), general); err != nil || len(found) != 0 {
		t.Errorf("found %d on their way out, %v", len(found), err)
	}
}
