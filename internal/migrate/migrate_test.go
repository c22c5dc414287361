package migrate

import (
	"bytes"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/apiserver"
	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
	"github.com/dovetail-k8s/dovetail/internal/aws/rolecheck"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

func text(t *testing.T, r Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.Text(&out, 0); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestASoundClusterIsClean(t *testing.T) {
	report := Run(sound(t))
	if got := text(t, report); !strings.HasSuffix(got, "\n0 obstacles, 0 warnings, 0 not checked\n") || len(report.Results) != len(Checks()) {
		t.Errorf("got:\n%s", got)
	}
	for _, words := range []string{
		"Karpenter 1.15.1 is Deployment karpenter/karpenter", "would be adopted, by the tag dovetail.sh/cluster-uid: 1", "nodes: 1, and each matches its NodePool and EC2NodeClass",
		"gates that are on: NodeRepair, ReservedCapacity, SpotToSpotConsolidation, DRAEFA", "cluster-name", "interruption-queue",
	} {
		if !strings.Contains(text(t, report), words) {
			t.Errorf("no %q in:\n%s", words, text(t, report))
		}
	}
}

// lease is the leader lease of a namespace.
func lease(namespace, holder string, renewed time.Time) coordinationv1.Lease {
	seconds, at := int32(15), metav1.NewMicroTime(renewed)
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
}

// definition is the one of a plural.
func (f *Facts) definition(name string) *apiextensionsv1.CustomResourceDefinition {
	for i := range f.Definitions {
		if f.Definitions[i].Name == name {
			return &f.Definitions[i]
		}
	}
	return nil
}

func TestObstacles(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant func(t *testing.T, f *Facts)
		// want is the one result that is not ok: "STATUS CHECK OBJECT FIELD"; words are in its text.
		want  string
		words []string
	}{
		{
			"an old version of the API is stored",
			func(_ *testing.T, f *Facts) {
				d := f.definition("nodepools.karpenter.sh")
				d.Status.StoredVersions = []string{"v1beta1", "v1"}
			},
			"obstacle crds CustomResourceDefinition nodepools.karpenter.sh status.storedVersions",
			[]string{"stored as v1beta1", "kubectl get nodepools.karpenter.sh -o json | kubectl replace -f -", `{"storedVersions":["v1"]}`},
		},
		{
			"only an old version of the API is served",
			func(_ *testing.T, f *Facts) {
				d := f.definition("ec2nodeclasses.karpenter.k8s.aws")
				d.Spec.Versions[0].Served = false
			},
			"obstacle crds CustomResourceDefinition ec2nodeclasses.karpenter.k8s.aws spec.versions",
			[]string{"version v1 is not served", "upgrade Karpenter to 1.0"},
		},
		{
			"objects of a kind that is gone",
			func(_ *testing.T, f *Facts) {
				d := apiextensionsv1.CustomResourceDefinition{}
				d.Name, d.Spec.Group = "provisioners.karpenter.sh", "karpenter.sh"
				f.Definitions, f.ObjectCounts[d.Name] = append(f.Definitions, d), 2
			},
			"obstacle crds CustomResourceDefinition provisioners.karpenter.sh",
			[]string{"2 objects", "kubectl get provisioners.karpenter.sh"},
		},
		{
			"the API server converts by a webhook of Karpenter",
			func(_ *testing.T, f *Facts) {
				f.definition("nodeclaims.karpenter.sh").Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
					Strategy: apiextensionsv1.WebhookConverter,
				}
			},
			"obstacle crds CustomResourceDefinition nodeclaims.karpenter.sh spec.conversion.strategy",
			[]string{"without Karpenter", "kubectl patch crd nodeclaims.karpenter.sh"},
		},
		{
			"a definition that is being deleted",
			func(_ *testing.T, f *Facts) {
				f.definition("nodepools.karpenter.sh").DeletionTimestamp = &metav1.Time{Time: f.Cluster.Now}
			},
			"obstacle crds CustomResourceDefinition nodepools.karpenter.sh metadata.deletionTimestamp",
			[]string{"with it all its objects and their nodes"},
		},
		{
			"a pool that is being deleted",
			func(_ *testing.T, f *Facts) {
				f.Cluster.NodePools[0].DeletionTimestamp = &metav1.Time{Time: f.Cluster.Now}
			},
			"warning drift NodePool general metadata.deletionTimestamp",
			[]string{"with it 1 node"},
		},
		{
			"a node without a pool",
			func(_ *testing.T, f *Facts) { delete(f.Cluster.NodeClaims[0].Labels, karpv1.LabelNodePool) },
			"warning drift NodeClaim general-x7k2p",
			[]string{"it has no NodePool (NodeClaim general-x7k2p)"},
		},
		{
			"a node of a class that is gone",
			func(_ *testing.T, f *Facts) { f.Cluster.NodeClaims[0].Spec.NodeClassRef.Name = "former" },
			"warning drift NodeClaim general-x7k2p",
			[]string{"EC2NodeClass former does not exist"},
		},
		{
			"a field without support",
			func(t *testing.T, f *Facts) {
				set(t, f.object("EC2NodeClass"), true, "spec", "hibernationOptions", "configured")
			},
			"obstacle fields EC2NodeClass default spec.hibernationOptions",
			[]string{"does not know the field"},
		},
		{
			"a field without support, of many NodeClaims",
			func(t *testing.T, f *Facts) {
				claim := f.object("NodeClaim")
				set(t, claim, "x", "status", "hibernation")
				for range 2000 {
					f.Objects = append(f.Objects, *claim.DeepCopy())
				}
			},
			"obstacle fields NodeClaim general-x7k2p status.hibernation",
			[]string{"the same of 2000 more"},
		},
		{
			"kubelet settings of a NodePool from before v1",
			func(_ *testing.T, f *Facts) {
				f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "public.ecr.aws/karpenter/controller:1.0.8"
				f.object("NodePool").SetAnnotations(map[string]string{kubeletAnnotation: `{"maxPods":20}`})
			},
			"obstacle fields NodePool general metadata.annotations[" + kubeletAnnotation + "]",
			[]string{"set spec.kubelet of the EC2NodeClass"},
		},
		{
			"such settings that Karpenter has forgotten, too",
			func(_ *testing.T, f *Facts) {
				f.object("NodePool").SetAnnotations(map[string]string{kubeletAnnotation: `{"maxPods":20}`})
			},
			"warning fields NodePool general metadata.annotations[" + kubeletAnnotation + "]",
			[]string{"Karpenter 1.15.1 either"},
		},
		{
			"a value that our definitions reject",
			func(t *testing.T, f *Facts) {
				set(t, f.object("NodePool"), "Someday", "spec", "disruption", "consolidationPolicy")
			},
			"obstacle fields NodePool general spec.disruption.consolidationPolicy",
			[]string{"Someday"},
		},
		{
			"a field without effect",
			func(t *testing.T, f *Facts) {
				o := f.object("EC2NodeClass")
				set(t, o, []any{map[string]any{"alias": "bottlerocket@v1.50.0"}}, "spec", "amiSelectorTerms")
				set(t, o, int64(5), "spec", "kubelet", "podsPerCore")
			},
			"warning fields EC2NodeClass default spec.kubelet.podsPerCore",
			[]string{"no setting for it"},
		},
		{
			"a right of the role is missing",
			func(_ *testing.T, f *Facts) {
				f.Denied = []rolecheck.Denied{{
					Sid: "AllowAdoptionOfInstances", Grants: []policy.Grant{{Action: "ec2:CreateTags", For: "this cluster's identity"}},
				}}
			},
			"obstacle permissions IAM role KarpenterController-shop statement AllowAdoptionOfInstances",
			[]string{
				"may not call ec2:CreateTags (this cluster's identity)", "aws iam put-role-policy --role-name KarpenterController-shop",
				"--identity " + clusterUID, "--interruption-queue shop-interruptions", "--node-role KarpenterNodeRole-shop",
			},
		},
		{
			"a right on one kind of resource",
			func(_ *testing.T, f *Facts) {
				f.Denied = []rolecheck.Denied{{
					Sid: "AllowScopedEC2InstanceAccessActions", Grants: []policy.Grant{{Action: "ec2:RunInstances", For: "launches"}},
					Kinds: map[string][]string{"ec2:RunInstances": {"subnet", "placement-group"}},
				}}
			},
			"obstacle permissions IAM role KarpenterController-shop statement AllowScopedEC2InstanceAccessActions",
			[]string{"may not call ec2:RunInstances on subnet, placement-group (launches)"},
		},
		{
			"a right on a kind of resource that no class uses",
			func(_ *testing.T, f *Facts) {
				f.Denied = []rolecheck.Denied{{
					Sid: "AllowScopedEC2InstanceAccessActions", Grants: []policy.Grant{{Action: "ec2:RunInstances", For: "launches"}},
					Kinds: map[string][]string{"ec2:RunInstances": {"capacity-reservation"}},
				}}
			},
			"warning permissions IAM role KarpenterController-shop statement AllowScopedEC2InstanceAccessActions",
			[]string{"on capacity-reservation"},
		},
		{
			"a right that only diagnoses need",
			func(_ *testing.T, f *Facts) {
				f.Denied = []rolecheck.Denied{{Sid: "AllowScopedConsoleOutput", Grants: []policy.Grant{{Action: "ec2:GetConsoleOutput"}}}}
			},
			"warning permissions IAM role KarpenterController-shop statement AllowScopedConsoleOutput",
			[]string{"ec2:GetConsoleOutput"},
		},
		{
			"a second Karpenter",
			func(_ *testing.T, f *Facts) {
				second := f.Deployments[0].DeepCopy()
				second.Namespace, second.Spec.Replicas = "kube-system", nil
				f.Deployments = append(f.Deployments, *second)
			},
			"obstacle controllers Deployment kube-system/karpenter spec.replicas",
			[]string{"beside Deployment karpenter/karpenter", "kubectl -n kube-system scale deployment karpenter --replicas 0"},
		},
		{
			"Dovetail runs already",
			func(_ *testing.T, f *Facts) {
				second := f.Deployments[0].DeepCopy()
				second.Name, second.Spec.Template.Spec.Containers[0].Image = "dovetail", "ghcr.io/dovetail-k8s/dovetail/controller:1.0.0"
				f.Deployments = append(f.Deployments, *second)
			},
			"obstacle controllers Deployment karpenter/dovetail spec.replicas",
			[]string{"scale deployment dovetail"},
		},
		{
			"instances of another cluster",
			func(_ *testing.T, f *Facts) {
				f.Cluster.Instances = append(f.Cluster.Instances, cloudprovider.Instance{
					ID: "i-9", Owner: cloudprovider.Foreign, Tags: map[string]string{awsv1.TagClusterUID: "other"},
				})
			},
			"obstacle foreign-instances cluster shop",
			[]string{"UID other", "give each cluster a name of its own"},
		},
		{
			"an instance that nobody knows",
			func(_ *testing.T, f *Facts) {
				f.Cluster.Instances = append(f.Cluster.Instances, cloudprovider.Instance{
					ID: "i-9", Owner: cloudprovider.Unknown, LaunchedAt: f.Cluster.Now,
				})
			},
			"warning adoption instance i-9",
			[]string{"dovetail adopt --cluster-name shop i-9 --yes"},
		},
		{
			"nodes that would drift from their image",
			func(_ *testing.T, f *Facts) {
				f.Drift["general-x7k2p"] = "AMIDrift"
				f.Selections["default"].Class.Status.AMIs[0].ID = "ami-2"
			},
			"obstacle drift EC2NodeClass default status.amis",
			[]string{"1 node of NodePool general would be replaced for AMIDrift (NodeClaim general-x7k2p): ami-1 -> ami-2"},
		},
		{
			"nodes that would drift from their pool",
			func(_ *testing.T, f *Facts) {
				f.Cluster.NodePools[0].Spec.Template.Spec.Requirements[0].Values = []string{"r"}
			},
			"obstacle drift NodePool general spec.template.spec.requirements[0]",
			[]string{"RequirementsDrifted"},
		},
		{
			"nodes that Karpenter replaces, too",
			func(_ *testing.T, f *Facts) {
				f.Drift["general-x7k2p"] = "AMIDrift"
				c := &f.Cluster.NodeClaims[0]
				drifted := c.Status.Conditions[0]
				drifted.Type, drifted.Reason = karpv1.ConditionDrifted, "AMIDrift"
				c.Status.Conditions = append(c.Status.Conditions, drifted)
			},
			"warning drift EC2NodeClass default status.amis",
			[]string{"Karpenter has marked them, too"},
		},
		{
			"an image alias that is gone",
			func(_ *testing.T, f *Facts) {
				f.Selections["default"] = Selection{Class: f.Selections["default"].Class, Conditions: []cloudprovider.Condition{{
					Type: awsv1.ConditionAMIsReady, Status: "False", Reason: "UnsupportedAlias",
					Message: "alias al2@latest on Kubernetes 1.33: Amazon Linux 2 images end with 1.32",
				}}}
			},
			"obstacle selectors EC2NodeClass default spec.amiSelectorTerms[0].alias",
			[]string{"images end with 1.32"},
		},
		{
			"a webhook without a backend",
			func(_ *testing.T, f *Facts) {
				f.Webhooks[WritesOfNodes] = []apiserver.Webhook{{
					Configuration: "validatingwebhookconfiguration guard", Name: "nodes.example.com", Unreachable: "its service a/b does not exist",
				}}
			},
			"obstacle webhooks validatingwebhookconfiguration guard webhooks[nodes.example.com].failurePolicy",
			[]string{"it must approve writes of Nodes, and its service a/b does not exist"},
		},
		{
			"a webhook of Karpenter itself",
			func(_ *testing.T, f *Facts) {
				f.Webhooks[WritesOfClaims] = []apiserver.Webhook{{
					Configuration: "validatingwebhookconfiguration validation.webhook.karpenter.sh", Name: "validation.webhook.karpenter.sh",
					Namespace: "karpenter", Service: "karpenter", Selector: map[string]string{"app.kubernetes.io/name": "karpenter"},
				}}
			},
			"obstacle webhooks validatingwebhookconfiguration validation.webhook.karpenter.sh " +
				"webhooks[validation.webhook.karpenter.sh].failurePolicy",
			[]string{"is Karpenter, which is stopped"},
		},
		{
			"a policy that rejects",
			func(_ *testing.T, f *Facts) {
				f.Policies = map[string][]apiserver.Policy{
					WritesOfNodes: {{Configuration: "validatingadmissionpolicy guard", Refuses: "its expression is false for all"}},
				}
			},
			"obstacle webhooks validatingadmissionpolicy guard spec.validations",
			[]string{"it rejects writes of Nodes: its expression is false for all", "kubectl delete validatingadmissionpolicy guard"},
		},
		{
			"a policy that may reject",
			func(_ *testing.T, f *Facts) {
				f.Policies = map[string][]apiserver.Policy{
					WritesOfPods:   {{Configuration: "validatingadmissionpolicy pods"}},
					WritesOfClaims: {{Configuration: "validatingadmissionpolicy guard"}},
				}
			},
			"warning webhooks validatingadmissionpolicy guard spec.validations",
			[]string{"were not evaluated", "ServiceAccount karpenter/karpenter"},
		},
		{
			"a gate without support",
			func(_ *testing.T, f *Facts) {
				f.setEnv("FEATURE_GATES", "NodeRepair=true,Hibernation=true,Other=false")
			},
			"obstacle feature-gates Deployment karpenter/karpenter spec.template.spec.containers[].env[FEATURE_GATES]",
			[]string{"does not have the gate Hibernation"},
		},
		{
			"a gate without support, in a text with spaces",
			func(_ *testing.T, f *Facts) {
				f.setEnv("FEATURE_GATES", "")
				f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"-feature-gates", " NodeRepair = true , Hibernation = T,"}
			},
			"obstacle feature-gates Deployment karpenter/karpenter spec.template.spec.containers[].env[FEATURE_GATES]",
			[]string{"does not have the gate Hibernation"},
		},
		{
			"a gate without support, beside a container that was injected",
			func(_ *testing.T, f *Facts) {
				pod := &f.Deployments[0].Spec.Template.Spec
				f.setEnv("FEATURE_GATES", "Hibernation=true")
				pod.Containers[0].Name = "karpenter"
				pod.Containers = append([]corev1.Container{{Name: "controller", Image: "example.com/mesh/proxy:1"}}, pod.Containers...)
			},
			"obstacle feature-gates Deployment karpenter/karpenter spec.template.spec.containers[].env[FEATURE_GATES]",
			[]string{"does not have the gate Hibernation"},
		},
		{
			"a gate without support, in a line for a shell",
			func(_ *testing.T, f *Facts) {
				c := &f.Deployments[0].Spec.Template.Spec.Containers[0]
				c.Command = []string{"/bin/karpenter"}
				c.Args = []string{`exec /karpenter --feature-gates="Hibernation=true" --batch-idle-duration 2s`}
			},
			"obstacle feature-gates Deployment karpenter/karpenter spec.template.spec.containers[].env[FEATURE_GATES]",
			[]string{"does not have the gate Hibernation"},
		},
		{
			"gates in a field of the pod",
			func(_ *testing.T, f *Facts) {
				f.setEnv("AWS_FEATURE_GATES", "")
				env := f.Deployments[0].Spec.Template.Spec.Containers[0].Env
				for i := range env {
					if env[i].Name == "AWS_FEATURE_GATES" {
						env[i].ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['gates']"}}
					}
				}
			},
			"not checked feature-gates Deployment karpenter/karpenter spec.template.spec.containers[].env[AWS_FEATURE_GATES]",
			[]string{"was not read"},
		},
		{
			"a second Karpenter that no Deployment runs",
			func(_ *testing.T, f *Facts) {
				own := true
				for _, p := range []struct{ name, kind, owner, hash string }{
					{"karpenter-0", "StatefulSet", "karpenter", ""},
					{"karpenter-1", "StatefulSet", "karpenter", ""},
					{"karpenter-6d5f-x", "ReplicaSet", "karpenter-6d5f", "6d5f"},
				} {
					pod := &corev1.Pod{Spec: f.Deployments[0].Spec.Template.Spec}
					pod.Namespace, pod.Name, pod.Labels = "karpenter", p.name, map[string]string{"pod-template-hash": p.hash}
					pod.OwnerReferences = []metav1.OwnerReference{{Kind: p.kind, Name: p.owner, Controller: &own}}
					f.Cluster.Pods = append(f.Cluster.Pods, pod)
				}
			},
			"obstacle controllers StatefulSet karpenter/karpenter image",
			[]string{"public.ecr.aws/karpenter/controller:1.15.1", "kubectl -n karpenter scale statefulset karpenter --replicas 0"},
		},
		{
			"a second controller that only its lease gives away",
			func(_ *testing.T, f *Facts) {
				f.Leases = []coordinationv1.Lease{
					lease("karpenter", "karpenter-6d5f-x_1", f.Cluster.Now), lease("kube-system", "autoscaler-0_2", f.Cluster.Now),
					lease("old", "karpenter-0_3", f.Cluster.Now.Add(-time.Hour)), lease("released", "", f.Cluster.Now),
				}
			},
			"obstacle controllers Lease kube-system/karpenter-leader-election spec.holderIdentity",
			[]string{"autoscaler-0_2 renews it"},
		},
		{
			"leases that cannot be read",
			func(_ *testing.T, f *Facts) { f.Cluster.Miss(Leases, "forbidden") },
			"not checked controllers",
			[]string{"leader leases could not be read"},
		},
		{
			"a setting that cannot work",
			func(_ *testing.T, f *Facts) { f.setEnv("VM_MEMORY_OVERHEAD_PERCENT", "1.5") },
			"obstacle settings Deployment karpenter/karpenter spec.template.spec.containers[].env",
			[]string{"--vm-memory-overhead-percent 1.5"},
		},
		{
			"an argument that is no setting",
			func(_ *testing.T, f *Facts) {
				f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--reserved-enis", "2", "--hibernate=true"}
			},
			"warning settings Deployment karpenter/karpenter spec.template.spec.containers[].args",
			[]string{"--hibernate"},
		},
		{
			"a custom provider",
			func(_ *testing.T, f *Facts) {
				f.Cluster.NodePools[0].Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{
					Group: "karpenter.example.com", Kind: "MetalNodeClass", Name: "rack",
				}
				f.Cluster.NodeClaims = nil
			},
			"obstacle provider NodePool general spec.template.spec.nodeClassRef",
			[]string{"MetalNodeClass rack of karpenter.example.com"},
		},
		{
			"nodes of a custom provider, without a pool",
			func(_ *testing.T, f *Facts) {
				for range 3 {
					claim := f.Cluster.NodeClaims[0].DeepCopy()
					claim.Name, claim.Labels, claim.Status.ProviderID = "rack-1", nil, ""
					claim.Spec.NodeClassRef = karpv1.NodeClassReference{Group: "karpenter.example.com", Kind: "MetalNodeClass", Name: "rack"}
					f.Cluster.NodeClaims = append(f.Cluster.NodeClaims, *claim)
				}
			},
			"obstacle provider NodeClaim rack-1 spec.nodeClassRef",
			[]string{"MetalNodeClass rack of karpenter.example.com", "the same of 2 more"},
		},
		{
			"an old Karpenter",
			func(_ *testing.T, f *Facts) {
				f.Deployments[0].Spec.Template.Spec.Containers[0].Image = "public.ecr.aws/karpenter/controller:0.37.8"
			},
			"obstacle version Deployment karpenter/karpenter spec.template.spec.containers[].image",
			[]string{"upgrade Karpenter to 1.0"},
		},
		{
			"a Karpenter that Argo CD restores",
			func(_ *testing.T, f *Facts) { f.Deployments[0].Labels["argocd.argoproj.io/instance"] = "karpenter" },
			"warning gitops Deployment karpenter/karpenter metadata.labels",
			[]string{"Argo CD owns the Deployment"},
		},
		{
			"a name of another cluster",
			func(_ *testing.T, f *Facts) { f.Cluster.Mismatch = "EKS cluster shop has another endpoint" },
			"obstacle cluster-name cluster shop",
			[]string{"another endpoint"},
		},
		{
			"a role that is not known",
			func(_ *testing.T, f *Facts) { f.Cluster.Miss(Role, "name it by --role ARN") },
			"not checked permissions",
			[]string{"--role ARN"},
		},
		{
			"an account that cannot be read",
			func(_ *testing.T, f *Facts) { f.Cluster.Miss(Drift, "AWS cannot be read") },
			"not checked drift",
			[]string{"AWS cannot be read"},
		},
		{
			"what fails with Karpenter, too",
			func(_ *testing.T, f *Facts) {
				f.Cluster.NodePools[0].Spec.Limits = nil
				f.Cluster.Missed = map[doctor.Fact]string{}
				f.Cluster.Joining = map[string][]cloudprovider.Finding{"default": {{Cause: "InstanceProfileNotFound", Message: "none"}}}
			},
			"warning doctor cluster",
			[]string{"auth-instance-profile", "dovetail doctor --cluster-name shop"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := sound(t)
			tt.plant(t, f)
			report := Run(f)
			var wrong []Result
			for _, r := range report.Results {
				if r.Status != OK {
					wrong = append(wrong, r)
				}
			}
			if len(wrong) != 1 {
				t.Fatalf("%d results are not ok, want 1:\n%s", len(wrong), text(t, report))
			}
			r := wrong[0]
			if got := strings.TrimSpace(strings.Join([]string{string(r.Status), r.Check, r.Object, r.Field}, " ")); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			for _, words := range tt.words {
				if !strings.Contains(r.Seen+" "+r.Remedy, words) {
					t.Errorf("no %q in %q, do: %q", words, r.Seen, r.Remedy)
				}
			}
			if r.Status != NotChecked && r.Remedy == "" {
				t.Errorf("%+v has no remedy", r)
			}
		})
	}
}

// What could not be read is never reported as sound, and hides no obstacle that was found all the same.
func TestWhatCouldNotBeReadIsNotSound(t *testing.T) {
	for _, tt := range []struct {
		name   string
		plant  func(f *Facts)
		checks []string
		also   string
	}{
		{"what a class selects", func(f *Facts) { f.Cluster.Miss(Selected, "ssm:GetParameter is denied") }, []string{"selectors", "drift"}, ""},
		{"the rest, beside a selector that finds nothing", func(f *Facts) {
			f.Cluster.Miss(Selected, "ec2:DescribeImages is denied")
			f.Selections["default"] = Selection{Class: f.Selections["default"].Class, Conditions: []cloudprovider.Condition{
				{Type: awsv1.ConditionSubnetsReady, Status: "False", Reason: "SubnetsNotFound"},
			}}
		}, []string{"selectors", "drift"}, "obstacle     selectors"},
		{"what only the doctor needs", func(f *Facts) { f.Cluster.Miss(doctor.Volumes, "forbidden") }, []string{"doctor"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := sound(t)
			tt.plant(f)
			got := text(t, Run(f))
			for _, check := range tt.checks {
				if !strings.Contains(got, "not checked  "+check+" ") || strings.Contains(got, "ok           "+check+" ") {
					t.Errorf("%s:\n%s", check, got)
				}
			}
			if !strings.Contains(got, tt.also) {
				t.Errorf("no %q in:\n%s", tt.also, got)
			}
		})
	}
}

func TestALongValueIsPrintedInPart(t *testing.T) {
	f := sound(t)
	set(t, f.object("NodePool"), strings.Repeat("x", 100_000), "spec", "disruption", "consolidationPolicy")
	got := text(t, Run(f))
	if len(got) > 10_000 || !strings.Contains(got, "more characters: see -o json); do: correct it") {
		t.Errorf("%d bytes: %.2000s", len(got), got)
	}
}

func TestAShadowIsNoSecondController(t *testing.T) {
	f := sound(t)
	shadow := f.Deployments[0].DeepCopy()
	shadow.Name, shadow.Spec.Template.Spec.Containers[0].Image = "dovetail-shadow", "ghcr.io/dovetail-k8s/dovetail/controller:1.0.0"
	shadow.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SHADOW", Value: "1"}}
	f.Deployments = append(f.Deployments, *shadow)
	if got := text(t, Run(f)); !strings.HasSuffix(got, "\n0 obstacles, 0 warnings, 0 not checked\n") {
		t.Error(got)
	}
}

func set(t *testing.T, o *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutKarpenterThereIsAnObstacle(t *testing.T) {
	f := sound(t)
	f.Deployments = nil
	if got := text(t, Run(f)); !strings.Contains(got, "obstacle     version            Deployment: no Deployment runs Karpenter; do: name it") {
		t.Error(got)
	}
}
