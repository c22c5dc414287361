package awstest

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// withDryRun starts a process that checks node classes by dry runs, in a cluster with these pools.
func (w *world) withDryRun(pools ...karpv1.NodePool) *cloud {
	cfg := w.config("uid-1")
	cfg.DisableDryRun = false
	cfg.NodePools = func(context.Context) ([]karpv1.NodePool, error) { return pools, nil }
	return w.start(cfg)
}

// poolOf is a pool of a class.
func poolOf(class string, requirements ...karpv1.Requirement) karpv1.NodePool {
	p := karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	p.Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: class}
	p.Spec.Template.Spec.Requirements = requirements
	return p
}

// checked resolves a class, writes down what it comes to, and returns the verdict.
func checked(t *testing.T, c *cloud, class *awsv1.EC2NodeClass) (cloudprovider.Condition, cloudprovider.Resolution) {
	t.Helper()
	r := c.ResolveNodeClass(t.Context(), class)
	conditions := class.Status.Conditions
	class.Status = r.Status
	for _, c := range r.Conditions {
		meta.SetStatusCondition(
			&conditions,
			metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, ObservedGeneration: class.Generation},
		)
	}
	class.Status.Conditions = conditions
	return conditionOf(r, awsv1.ConditionValidationSucceeded), r
}

func denied(by string) *protocol.Error {
	return protocol.Errorf(
		"UnauthorizedOperation",
		"You are not authorized to perform this operation. User: arn:aws:sts::111122223333:assumed-role/controller/x is "+
			"not authorized to perform: ec2:CreateFleet %s",
		by,
	).WithStatus(
		403,
	)
}

// dryRuns counts the calls by which a class is checked.
func (w *world) dryRuns() (fleets, runs int) {
	return w.called("CreateFleet"), w.called("RunInstances")
}

func TestDryRun(t *testing.T) {
	w := newWorld(t)
	c := w.withDryRun()
	class := nodeClass("default")
	got, r := checked(t, c, class)
	if got.Status != metav1.ConditionTrue || r.Err != nil {
		t.Fatalf("%+v, %v", got, r.Err)
	}
	if fleets, runs := w.dryRuns(); fleets != 1 || runs != 1 || len(w.Sim.Instances()) > 0 {
		t.Errorf("%d fleets, %d runs, %d instances", fleets, runs, len(w.Sim.Instances()))
	}
	t.Run("a yes is believed for half an hour, whatever is noted on the class", func(t *testing.T) {
		w.Clock.Advance(29 * time.Minute)
		class.Annotations = map[string]string{"example.com/owner": "b"}
		if got, r := checked(t, c, class); got.Status != metav1.ConditionTrue || r.Next > time.Minute {
			t.Errorf("%+v, again in %v", got, r.Next)
		}
		if fleets, _ := w.dryRuns(); fleets != 1 {
			t.Errorf("%d fleets", fleets)
		}
		w.Clock.Advance(time.Minute)
		checked(t, c, class)
		if fleets, _ := w.dryRuns(); fleets != 2 {
			t.Errorf("%d fleets", fleets)
		}
	})
	t.Run("an edit is checked at once", func(t *testing.T) {
		class.Spec.Tags = map[string]string{"more": "b"}
		class.Generation++
		checked(t, c, class)
		if fleets, _ := w.dryRuns(); fleets != 3 {
			t.Errorf("%d fleets", fleets)
		}
	})
	t.Run("what was made for it goes with the class", func(t *testing.T) {
		if err := c.DeleteNodeClassResources(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		out, err := ec2.NewFromConfig(w.Config).DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{})
		if err != nil || len(out.LaunchTemplates) > 0 {
			t.Errorf("%d launch templates, %v", len(out.LaunchTemplates), err)
		}
	})
	t.Run("with dry runs disabled, there is no call", func(t *testing.T) {
		w := newWorld(t)
		got, _ := checked(t, w.start(w.config("uid-1")), nodeClass("default"))
		if fleets, runs := w.dryRuns(); got.Status != metav1.ConditionTrue || fleets+runs+w.called("CreateLaunchTemplate") > 0 {
			t.Errorf("%+v, %d fleets, %d runs", got, fleets, runs)
		}
	})
}

func TestDryRunRefused(t *testing.T) {
	for _, tc := range []struct {
		name, action, by string
		reason, says     string
	}{
		{
			"launch templates, by no policy", "CreateLaunchTemplate",
			"because no identity-based policy allows the ec2:CreateLaunchTemplate action", "CreateLaunchTemplateAuthCheckFailed",
			"no identity-based policy",
		},
		{
			"fleets, by a permissions boundary", "CreateFleet", "with an explicit deny in a permissions boundary", "CreateFleetAuthCheckFailed",
			"denied by a permissions boundary",
		},
		{
			"instances, by a service control policy", "RunInstances", "with an explicit deny in a service control policy",
			"RunInstancesAuthCheckFailed", "denied by a service control policy",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.withDryRun()
			class := nodeClass("default")
			deny := func() {
				w.Sim.Inject(awsim.Fault{Service: "ec2", Action: tc.action, Error: denied(tc.by), Times: 100})
			}
			deny()
			got, r := checked(t, c, class)
			if got.Status != metav1.ConditionFalse || got.Reason != tc.reason || !strings.Contains(got.Message, tc.says) ||
				strings.Contains(got.Message, "RequestID") ||
				r.Err != nil {
				t.Fatalf("%+v, %v", got, r.Err)
			}
			calls := w.called(tc.action)
			if again, _ := checked(t, c, class); again != got || w.called(tc.action) != calls {
				t.Errorf("repeated at once: %+v", again)
			}
			w.Clock.Advance(30 * time.Second)
			checked(t, c, class)
			if w.called(tc.action) == calls {
				t.Error("not repeated after half a minute")
			}
			t.Run("a policy that is put right is seen within five minutes, without a restart or an edit", func(t *testing.T) {
				for range 20 { // long wrong
					w.Clock.Advance(r.Next)
					checked(t, c, class)
				}
				w.Sim.ClearFaults()
				w.Clock.Advance(5 * time.Minute)
				if got, _ := checked(t, c, class); got.Status != metav1.ConditionTrue {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

func TestDryRunWithoutAnswer(t *testing.T) {
	busy := protocol.Errorf("InternalError", "bad minute").WithStatus(500)
	t.Run("one subnet fails, the next accepts", func(t *testing.T) {
		w := newWorld(t)
		w.Sim.Inject(awsim.Fault{Service: "ec2", Action: "RunInstances", Error: busy})
		got, _ := checked(t, w.withDryRun(), nodeClass("default"))
		if _, runs := w.dryRuns(); got.Status != metav1.ConditionTrue || runs != 2 {
			t.Errorf("%+v, %d runs", got, runs)
		}
	})
	t.Run("one subnet is refused, of another nothing is known", func(t *testing.T) {
		w := newWorld(t)
		w.Sim.Inject(awsim.Fault{Service: "ec2", Action: "RunInstances", Error: denied("")})
		w.Sim.Inject(awsim.Fault{Service: "ec2", Action: "RunInstances", Error: busy, Times: 100})
		if got, r := checked(t, w.withDryRun(), nodeClass("default")); got.Status != "unchanged" || r.Err == nil {
			t.Errorf("%+v, %v", got, r.Err)
		}
	})
	for _, action := range []string{"CreateLaunchTemplate", "CreateFleet", "RunInstances"} {
		for name, problem := range map[string]*protocol.Error{"throttled": protocol.Errorf("RequestLimitExceeded", "Request limit exceeded.").WithStatus(503), "busy": busy} {
			t.Run(action+" "+name+": repeated, without a conclusion", func(t *testing.T) {
				w := newWorld(t)
				c := w.withDryRun()
				w.Sim.Inject(awsim.Fault{Service: "ec2", Action: action, Error: problem, Times: 100})
				class := nodeClass("default")
				if got, r := checked(t, c, class); got.Status != "unchanged" || r.Err == nil {
					t.Errorf("%+v, %v", got, r.Err)
				}
				w.Sim.ClearFaults()
				if got, r := checked(t, c, class); got.Status != metav1.ConditionTrue || r.Err != nil {
					t.Errorf("%+v, %v", got, r.Err)
				}
			})
		}
	}
	t.Run("what a person has to look at is said, and does not unready a class that was ready", func(t *testing.T) {
		w := newWorld(t)
		c := w.withDryRun()
		class := nodeClass("default")
		odd := awsim.Fault{
			Service: "ec2",
			Action:  "CreateFleet",
			Error:   protocol.Errorf("PendingVerification", "Your account is currently being verified.").WithStatus(400),
		}
		w.Sim.Inject(odd)
		if got, r := checked(t, c, class); got.Status != metav1.ConditionUnknown || !strings.Contains(got.Message, "being verified") ||
			r.Err == nil {
			t.Errorf("%+v, %v", got, r.Err)
		}
		class = nodeClass("default")
		checked(t, c, class)
		w.Clock.Advance(time.Hour)
		w.Sim.Inject(odd)
		if got, r := checked(t, c, class); got.Status != "unchanged" || r.Err == nil {
			t.Errorf("%+v, %v", got, r.Err)
		}
		class.Generation++
		w.Sim.Inject(odd)
		if got, r := checked(t, c, class); got.Status != metav1.ConditionUnknown || r.Err == nil {
			t.Errorf("after an edit: %+v, %v", got, r.Err)
		}
	})
	t.Run("user data that is too long", func(t *testing.T) {
		w := newWorld(t)
		class := nodeClass("default")
		class.Spec.UserData = "#!/bin/bash\n#" + strings.Repeat("x", 17000)
		if got, _ := checked(t, w.withDryRun(), class); got.Status != metav1.ConditionFalse || got.Reason != "UserDataSizeLimitExceeded" {
			t.Errorf("%+v", got)
		}
	})
}

func TestDryRunAndInstanceProfiles(t *testing.T) {
	unknown := protocol.Errorf(
		"InvalidParameterValue",
		"Value (mine) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
	)
	t.Run("the user's profile does not exist", func(t *testing.T) {
		w := newWorld(t)
		c := w.withDryRun()
		class := nodeClass("default")
		class.Spec.Role, class.Spec.InstanceProfile = "", "mine"
		got, r := checked(t, c, class)
		if got.Status != metav1.ConditionFalse || got.Reason != "InstanceProfileNotFound" || r.Next > 10*time.Second {
			t.Errorf("%+v, again in %v", got, r.Next)
		}
	})
	t.Run("a profile that has just been made is waited for", func(t *testing.T) {
		w := newWorld(t)
		c := w.withDryRun()
		class := nodeClass("default")
		w.Sim.Inject(awsim.Fault{Service: "ec2", Action: "RunInstances", Error: unknown, Times: 100})
		got, r := checked(t, c, class)
		if got.Status != metav1.ConditionUnknown || r.Err != nil || r.Next > 10*time.Second {
			t.Errorf("%+v, %v, again in %v", got, r.Err, r.Next)
		}
		w.Sim.ClearFaults()
		if got, r := checked(t, c, class); got.Status != metav1.ConditionTrue || r.Err != nil {
			t.Errorf("%+v, %v", got, r.Err)
		}
	})
}

// template is the content of the only launch template there is, and its type that was requested.
func (w *world) dryRunCalls(t *testing.T) *ec2types.ResponseLaunchTemplateData {
	t.Helper()
	client := ec2.NewFromConfig(w.Config)
	all, err := client.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{})
	if err != nil || len(all.LaunchTemplates) != 1 {
		t.Fatalf("%d launch templates, %v", len(all.LaunchTemplates), err)
	}
	out, err := client.DescribeLaunchTemplateVersions(
		t.Context(),
		&ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: all.LaunchTemplates[0].LaunchTemplateId},
	)
	if err != nil {
		t.Fatal(err)
	}
	return out.LaunchTemplateVersions[0].LaunchTemplateData
}

func TestRequestsOfADryRun(t *testing.T) {
	gpu := in("karpenter.k8s.aws/instance-gpu-count", "1")
	for _, tc := range []struct {
		name     string
		class    string
		pool     []karpv1.Requirement
		standard bool
		tenancy  ec2types.Tenancy
	}{
		{"what the pool launches", "default", []karpv1.Requirement{gpu}, false, ec2types.TenancyDefault},
		{"a pool of another class does not count", "other", []karpv1.Requirement{gpu}, true, ec2types.TenancyDefault},
		{
			"nothing suits the pool", "default",
			[]karpv1.Requirement{in(corev1.LabelInstanceTypeStable, "z9.large")},
			true,
			ec2types.TenancyDefault,
		},
		{"standard and accelerated images both match", "default", nil, true, ec2types.TenancyDefault},
		{
			"a pool that allows both tenancies", "default",
			[]karpv1.Requirement{in(awsv1.LabelInstanceTenancy, "default", "dedicated")},
			true,
			ec2types.TenancyDedicated,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			class := nodeClass("default")
			if got, r := checked(t, w.withDryRun(poolOf(tc.class, tc.pool...)), class); got.Status != metav1.ConditionTrue {
				t.Fatalf("%+v, %v", got, r.Err)
			}
			data := w.dryRunCalls(t)
			if data.Placement.Tenancy != tc.tenancy {
				t.Errorf("tenancy %s", data.Placement.Tenancy)
			}
			for _, ami := range class.Status.AMIs {
				if ami.ID == *data.ImageId && strings.Contains(ami.Name, "standard") != tc.standard {
					t.Errorf("image %s", ami.Name)
				}
			}
		})
	}
}
