package awstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// The identities of two clusters of one name.
const (
	blueUID  = "3f2c1a9e-7d44-4c0b-9a55-0d6e1f2b3c4d"
	greenUID = "9b1d7c42-0c1e-4f7a-8a8b-6f5e4d3c2b1a"
)

// expectedPermissions is the policy that `dovetail iam-policy` prints for a cluster with this UID.
func expectedPermissions(t testing.TB, uid string) policy.Document {
	t.Helper()
	d, err := policy.New(policy.Params{
		Cluster: clusterName, Identity: uid, Region: "us-east-1", Account: "111122223333", Queues: []string{clusterName},
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// controllerKeys are the credentials of the cluster's controller, which may do what the product states that it needs. As
// the tests have many a cluster, role, queue, parameter, and profiles that are not tagged in full, it may do it to any
// of these.
func (w *world) controllerKeys() awsim.Credentials {
	w.t.Helper()
	d, err := policy.New(policy.Params{
		Cluster: clusterName, Region: "us-east-1", NodeRoles: []string{"arn:aws:iam::111122223333:role/*"},
		Queues:     []string{"arn:aws:sqs:us-east-1:111122223333:*"},
		Parameters: []string{"arn:aws:ssm:us-east-1:111122223333:parameter/*"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	d = append(d, policy.Statement{Sid: "Any", Resources: []string{"*"}, Grants: []policy.Grant{
		{
			Action: "iam:TagInstanceProfile",
		}, {Action: "iam:RemoveRoleFromInstanceProfile"}, {Action: "iam:DeleteInstanceProfile"}, {Action: "eks:DescribeCluster"},
	}})
	text, err := d.JSON()
	if err != nil {
		w.t.Fatal(err)
	}
	role := awsim.ControllerRole(clusterName)
	if err := w.Sim.IAM().PutRolePolicy(role, "controller", string(text)); err != nil {
		w.t.Fatal(err)
	}
	keys, err := w.Sim.RoleCredentials(role)
	if err != nil {
		w.t.Fatal(err)
	}
	return keys
}

// enforcing is newWorld, where that is what matters: the account holds everybody to their policies.
func enforcing(t testing.TB) *world {
	t.Helper()
	return newWorld(t)
}

// as is the SDK's configuration of a controller with a role that has this policy and no other.
func (w *world) as(role, document string) awssdk.Config {
	w.t.Helper()
	account := w.Sim.IAM()
	if _, known := account.Role(role); !known {
		original, _ := account.Role(awsim.ControllerRole(clusterName))
		original.Name = role
		if _, err := account.CreateRole(original); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := account.PutRolePolicy(role, "controller", document); err != nil {
		w.t.Fatal(err)
	}
	keys, err := w.Sim.RoleCredentials(role)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := w.config(blueUID).AWS
	cfg.Credentials = w.As(keys).Credentials
	return cfg
}

// controller is that of a cluster with this UID, in a role of its own that may do what the policy states.
func (w *world) controller(uid string, document policy.Document) adapter.Config {
	w.t.Helper()
	text, err := document.JSON()
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := w.asKnown(uid)
	cfg.AWS = w.as("controller-"+uid[:8], string(text))
	return cfg
}

// rejected are the actions that were called by roles without the right to them, by name.
func (w *world) deniedCalls() []string {
	found := map[string]bool{}
	for _, c := range w.Sim.Calls() {
		if slices.Contains([]string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}, c.ErrorCode) &&
			strings.Contains(c.Principal, ":assumed-role/") {
			found[c.Service+":"+c.Action] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// firstRefused does the exercises up to the first that fails or in which a call is rejected, and returns its name, and
// why.
func firstRefused(t *testing.T, document policy.Document) (name string, why error) {
	t.Helper()
	w := enforcing(t)
	x := &permissionFixture{world: w, cfg: w.controller(blueUID, document)}
	for _, e := range permissionCases() {
		err := e.do(t.Context(), x)
		if denied := w.deniedCalls(); err != nil || len(denied) > 0 {
			return e.name, fmt.Errorf("%w (denied: %s)", errors.Join(err), strings.Join(denied, ", "))
		}
	}
	return "", nil
}

func TestPolicyIsSufficient(t *testing.T) {
	for name, uid := range map[string]string{"bound to the identity": blueUID, "bound to the name": ""} {
		t.Run(name, func(t *testing.T) {
			if exercise, err := firstRefused(t, expectedPermissions(t, uid)); exercise != "" {
				t.Errorf("%s: %v", exercise, err)
			}
		})
	}
}

// Without any one of the actions of any one statement, something that the controller does fails.
func TestPolicyIsMinimal(t *testing.T) {
	whole := expectedPermissions(t, blueUID)
	for s, statement := range whole {
		for g, grant := range statement.Grants {
			t.Run(statement.Sid+"/"+grant.Action, func(t *testing.T) {
				t.Parallel() // each has an account of its own, and half of the time waits for answers
				less := slices.Clone(whole)
				less[s].Grants = slices.Delete(slices.Clone(statement.Grants), g, g+1)
				if len(less[s].Grants) == 0 {
					less = slices.Delete(less, s, s+1)
				}
				exercise, why := firstRefused(t, less)
				if exercise == "" {
					t.Error("nothing fails without it")
				}
				if why != nil && !strings.Contains(why.Error(), grant.Action) &&
					!strings.Contains(why.Error(), strings.TrimPrefix(grant.Action, "ec2:")) {
					t.Errorf("%s fails without it, but for another reason: %v", exercise, why)
				}
			})
		}
	}
}

// The policy that Karpenter publishes, with the name of the cluster filled in.
func karpenters(t *testing.T) policy.Document {
	t.Helper()
	text, err := os.ReadFile("testdata/karpenter-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, text)
}

// parsed is a policy that only allows.
func parsed(t *testing.T, text []byte) policy.Document {
	t.Helper()
	var d struct {
		Statement []struct {
			Sid              string
			Action, Resource any
			Condition        map[string]map[string]any
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	list := func(v any) (out []string) {
		if one, ok := v.(string); ok {
			return []string{one}
		}
		for _, e := range v.([]any) {
			out = append(out, e.(string))
		}
		return out
	}
	var out policy.Document
	for _, s := range d.Statement {
		converted := policy.Statement{Sid: s.Sid, Resources: list(s.Resource), Conditions: policy.Conditions{}}
		for _, a := range list(s.Action) {
			converted.Grants = append(converted.Grants, policy.Grant{Action: a})
		}
		for operator, tests := range s.Condition {
			converted.Conditions[operator] = map[string][]string{}
			for key, values := range tests {
				converted.Conditions[operator][key] = list(values)
			}
		}
		out = append(out, converted)
	}
	return out
}

// What does not work with Karpenter's own policy, and what does: docs/aws.md states it.
func TestWithKarpentersPolicy(t *testing.T) {
	w := enforcing(t)
	x := &permissionFixture{world: w, cfg: w.controller(blueUID, karpenters(t))}
	var failed []string
	for _, e := range permissionCases() {
		if err := e.do(t.Context(), x); err != nil {
			failed = append(failed, e.name)
		}
	}
	// The instance that could not be taken over cannot be stopped, either.
	if diff := cmp.Diff([]string{
		"take over an instance of Karpenter", "end instances", "end a node class of which Karpenter has made a profile",
	}, failed); diff != "" {
		t.Errorf("what fails (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"ec2:CreateTags", "ec2:DescribeRouteTables", "ec2:GetConsoleOutput", "eks:ListAccessEntries", "iam:GetRole", "iam:TagInstanceProfile",
	}, w.deniedCalls()); diff != "" {
		t.Errorf("denied calls (-want +got):\n%s", diff)
	}
}

// unauthorized reports whether an error is a rejection for lack of rights.
func unauthorized(err error) bool {
	return slices.Contains([]string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}, awsimtest.Code(err))
}

// Two clusters of one name in one account, each bound to its identity: neither can touch what is the other's, whatever
// its controller is instructed to do.
func TestClustersWithOneNameCannotChangeEachOther(t *testing.T) {
	w := enforcing(t)
	ctx := t.Context()
	blue, green := w.controller(blueUID, expectedPermissions(t, blueUID)), w.controller(greenUID, expectedPermissions(t, greenUID))
	class := nodeClass("default")
	c := w.start(blue)
	resolve(t, c, class)
	if _, err := c.Launch(ctx, claim("general-1", onDemand), class); err != nil {
		t.Fatal(err)
	}
	w.advancePastDelays()
	victim, image, typ := w.runningInstances()[0].ID, w.runningInstances()[0].ImageID, w.runningInstances()[0].Type
	profile := class.Status.InstanceProfile
	admin := ec2.NewFromConfig(w.Config)
	template := awsimtest.OK(admin.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{}))(t).LaunchTemplates[0].LaunchTemplateId
	tags := func(key, value string) []ec2types.Tag { return []ec2types.Tag{{Key: &key, Value: &value}} }
	theirs, accounts := ec2.NewFromConfig(green.AWS), iam.NewFromConfig(green.AWS)
	for name, call := range map[string]func() error{
		"end its instance": func() error {
			_, err := theirs.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{victim}})
			return err
		},
		"ask whether it could end its instance": func() error {
			_, err := theirs.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{victim}, DryRun: awssdk.Bool(true)})
			return err
		},
		"name its instance": func() error {
			_, err := theirs.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{victim}, Tags: tags("Name", "mine")})
			return err
		},
		"adopt its instance": func() error {
			_, err := theirs.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{victim}, Tags: tags("dovetail.sh/cluster-uid", greenUID)})
			return err
		},
		"read the console of its instance": func() error {
			_, err := theirs.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &victim})
			return err
		},
		"delete its launch template": func() error {
			_, err := theirs.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: template})
			return err
		},
		"launch from its launch template": func() error {
			_, err := theirs.RunInstances(ctx, &ec2.RunInstancesInput{
				MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), ImageId: &image, InstanceType: ec2types.InstanceType(typ),
				LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateId: template},
				NetworkInterfaces: []ec2types.InstanceNetworkInterfaceSpecification{{
					DeviceIndex: awssdk.Int32(0),
					SubnetId:    &class.Status.Subnets[0].ID,
				}},
			})
			return err
		},
		"delete its instance profile": func() error {
			_, err := accounts.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: &profile})
			return err
		},
		"take the role out of its instance profile": func() error {
			_, err := accounts.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &profile, RoleName: awssdk.String(awsim.NodeRole(clusterName))})
			return err
		},
		"adopt its instance profile": func() error {
			_, err := accounts.TagInstanceProfile(ctx, &iam.TagInstanceProfileInput{InstanceProfileName: &profile, Tags: []iamtypes.Tag{{Key: awssdk.String("dovetail.sh/cluster-uid"), Value: awssdk.String(greenUID)}}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := call(); !unauthorized(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	if left := w.runningInstances(); len(left) != 1 || left[0].ID != victim || left[0].Tags["dovetail.sh/cluster-uid"] != blueUID {
		t.Errorf("left: %+v", left)
	}
	// Its own controller may.
	if _, err := ec2.NewFromConfig(blue.AWS).TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{victim}, DryRun: awssdk.Bool(true)}); awsimtest.Code(
		err,
	) != "DryRunOperation" {
		t.Errorf("its own controller: %v", err)
	}
}

// What the policy does not speak of is rejected, in each service's words.
func TestCallsOutsideThePolicy(t *testing.T) {
	w := enforcing(t)
	ctx := t.Context()
	cfg := w.controller(blueUID, expectedPermissions(t, blueUID))
	class := nodeClass("default")
	c := w.start(cfg)
	resolve(t, c, class)
	got, err := c.Launch(ctx, claim("general-1", onDemand), class)
	if err != nil {
		t.Fatal(err)
	}
	w.advancePastDelays()
	own, profile := w.runningInstances()[0].ID, class.Status.InstanceProfile
	if _, err := c.Get(ctx, got.ProviderID); err != nil {
		t.Fatal(err)
	}
	if err := w.Sim.SQS().CreateQueue("orders", nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Sim.SSM().Put("/secrets/db", "x"); err != nil {
		t.Fatal(err)
	}
	compute, account, queues := ec2.NewFromConfig(cfg.AWS), iam.NewFromConfig(cfg.AWS), sqs.NewFromConfig(cfg.AWS)
	template := awsimtest.OK(ec2.NewFromConfig(w.Config).DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{}))(t).LaunchTemplates[0].LaunchTemplateName
	fleet := func(tags map[string]string) *ec2.CreateFleetInput {
		list := instance.Tags(tags)
		return &ec2.CreateFleetInput{
			Type: "instant", TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: awssdk.Int32(1)},
			LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
				LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{
					LaunchTemplateName: template,
					Version:            awssdk.String("$Latest"),
				},
				Overrides: []ec2types.FleetLaunchTemplateOverridesRequest{
					{InstanceType: "m5.large", SubnetId: &class.Status.Subnets[0].ID},
				},
			}},
			TagSpecifications: []ec2types.TagSpecification{
				{ResourceType: "fleet", Tags: list},
				{ResourceType: "instance", Tags: list},
				{ResourceType: "volume", Tags: list},
			},
		}
	}
	anothers := cfg.Identity
	anothers.ClusterUID = greenUID
	for _, tc := range []struct {
		name, code, says string
		call             func() error
	}{
		{
			"an action of EC2", "UnauthorizedOperation",
			"You are not authorized to perform this operation. User: arn:aws:sts::111122223333:assumed-role/controller-3f2c1a9e/dovetail-lab is not authorized to perform: ec2:DescribeVpcs because no identity-based policy allows the ec2:DescribeVpcs action. Encoded authorization failure message: ", func() error {
				_, err := compute.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{})
				return err
			},
		},
		{"stop an instance of its own", "UnauthorizedOperation", "on resource: arn:aws:ec2:us-east-1:111122223333:instance/" + own, func() error {
			_, err := compute.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{own}})
			return err
		}},
		{"any tag on an instance of its own", "UnauthorizedOperation", "ec2:CreateTags", func() error {
			_, err := compute.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{own}, Tags: []ec2types.Tag{{Key: awssdk.String("team"), Value: awssdk.String("b")}}})
			return err
		}},
		{"take a tag off an instance of its own", "UnauthorizedOperation", "ec2:DeleteTags", func() error {
			_, err := compute.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{own}})
			return err
		}},
		{
			"a fleet without tags", "UnauthorizedOperation", "ec2:CreateFleet on resource: arn:aws:ec2:us-east-1:111122223333:fleet/*",
			func() error {
				_, err := compute.CreateFleet(ctx, fleet(nil))
				return err
			},
		},
		{"a fleet in the name of another cluster", "UnauthorizedOperation", "ec2:CreateFleet", func() error {
			_, err := compute.CreateFleet(ctx, fleet(anothers.LaunchTags("default", "general", nil)))
			return err
		}},
		{"whether a fleet would be launched in the name of another cluster", "UnauthorizedOperation", "ec2:CreateFleet", func() error {
			in := fleet(anothers.LaunchTags("default", "general", nil))
			in.DryRun = awssdk.Bool(true)
			_, err := compute.CreateFleet(ctx, in)
			return err
		}},
		{"whether a fleet of its own would be launched", "DryRunOperation", "", func() error {
			in := fleet(cfg.Identity.LaunchTags("default", "general", nil))
			in.DryRun = awssdk.Bool(true)
			_, err := compute.CreateFleet(ctx, in)
			return err
		}},
		{
			"a launch template without tags", "UnauthorizedOperation",
			"ec2:CreateLaunchTemplate on resource: arn:aws:ec2:us-east-1:111122223333:launch-template/*", func() error {
				_, err := compute.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
					LaunchTemplateName: awssdk.String("bare"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "m5.large"},
				})
				return err
			},
		},
		{
			"give nodes another role", "AccessDenied", "iam:PassRole on resource: arn:aws:iam::111122223333:role/KarpenterControllerRole-blue",
			func() error {
				awsimtest.OK(account.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &profile, RoleName: awssdk.String(awsim.NodeRole(clusterName))}))(t)
				_, err := account.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: &profile, RoleName: awssdk.String(awsim.ControllerRole(clusterName))})
				return err
			},
		},
		{"an instance profile without tags", "AccessDenied", "iam:CreateInstanceProfile", func() error {
			_, err := account.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: awssdk.String("bare")})
			return err
		}},
		{
			"a policy for itself", "AccessDenied", "iam:PutRolePolicy on resource: arn:aws:iam::111122223333:role/controller-3f2c1a9e",
			func() error {
				_, err := account.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: awssdk.String("controller-3f2c1a9e"), PolicyName: awssdk.String("more"), PolicyDocument: awssdk.String("{}")})
				return err
			},
		},
		{
			"another cluster", "AccessDeniedException", "eks:DescribeCluster on resource: arn:aws:eks:us-east-1:111122223333:cluster/green",
			func() error {
				_, err := eks.NewFromConfig(cfg.AWS).DescribeCluster(ctx, &eks.DescribeClusterInput{Name: awssdk.String("green")})
				return err
			},
		},
		{"another queue", "AccessDenied", "sqs:receivemessage", func() error {
			_, err := queues.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: awssdk.String(w.URL + "/111122223333/orders")})
			return err
		}},
		{
			"a parameter of the account", "AccessDeniedException",
			"ssm:GetParameter on resource: arn:aws:ssm:us-east-1:111122223333:parameter/secrets/db", func() error {
				_, err := ssm.NewFromConfig(cfg.AWS).GetParameter(ctx, &ssm.GetParameterInput{Name: awssdk.String("/secrets/db")})
				return err
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.call()
			if awsimtest.Code(err) != tc.code || !strings.Contains(strings.ToLower(fmt.Sprint(err)), strings.ToLower(tc.says)) {
				t.Errorf("got %v, want %s: %s", err, tc.code, tc.says)
			}
		})
	}
	if len(w.runningInstances()) != 1 {
		t.Errorf("%d instances live", len(w.runningInstances()))
	}
}

// What the role may not read is named, as the doctor and the controller's start state it.
func TestMissingPermissionsAreNamed(t *testing.T) {
	w := enforcing(t)
	if missing := w.start(w.controller(blueUID, expectedPermissions(t, blueUID))).MissingPermissions(t.Context()); len(missing) > 0 {
		t.Errorf("with the whole policy: %v", missing)
	}
	less := slices.DeleteFunc(
		expectedPermissions(t, blueUID),
		func(s policy.Statement) bool { return s.Sid == "AllowRegionalReadActions" },
	)
	less = append(
		less,
		policy.Statement{
			Sid:       "Few",
			Resources: []string{"*"},
			Grants:    []policy.Grant{{Action: "ec2:DescribeInstanceT*"}, {Action: "ec2:DescribeI*s"}},
		},
	)
	missing := w.start(w.controller(greenUID, less)).MissingPermissions(t.Context())
	if diff := cmp.Diff([]string{
		"ec2:DescribeCapacityReservations", "ec2:DescribeLaunchTemplates", "ec2:DescribePlacementGroups", "ec2:DescribeSecurityGroups",
		"ec2:DescribeSpotPriceHistory", "ec2:DescribeSubnets",
	}, missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
}
