package awstest

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// booted launches the claim and returns the instance, and so what it was handed.
func (w *world) booted(c *cloud, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) awsim.Instance {
	w.t.Helper()
	got, err := c.Launch(w.t.Context(), claim, class)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, i := range w.runningInstances() {
		if strings.HasSuffix(got.ProviderID, "/"+i.ID) {
			return i
		}
	}
	w.t.Fatalf("there is no instance %s", got.ProviderID)
	return awsim.Instance{}
}

func TestUserDataOfInstances(t *testing.T) {
	mentions := func(t *testing.T, i awsim.Instance, want map[string]bool) {
		t.Helper()
		for text, there := range want {
			if strings.Contains(string(i.UserData), text) != there {
				t.Errorf("%q in the user data: %v, want %v\n%s", text, !there, there, i.UserData)
			}
		}
	}
	t.Run("AL2023 without service CIDR", func(t *testing.T) {
		w := newWorld(t)
		class := nodeClass("default")
		resolve(t, w.start(w.config("uid-1")), class)
		w.Sim.Inject(
			awsim.Fault{
				Service: "eks",
				Action:  "DescribeCluster",
				Times:   9,
				Error:   protocol.Errorf("AccessDeniedException", "no").WithStatus(403),
			},
		)
		cfg := w.config("uid-1")
		cfg.Cluster.Endpoint, cfg.Cluster.CABundle, cfg.KubernetesVersion = endpoint, base64.StdEncoding.EncodeToString(w.ca), "1.32"
		_, err := w.start(cfg).Launch(t.Context(), claim("general-1", onDemand), class)
		if !errors.Is(err, cloudprovider.ErrNotKnownYet) || w.called("CreateLaunchTemplate") != 0 || w.called("CreateFleet") != 0 {
			t.Errorf("%d launch templates, %d fleets, error %v", w.called("CreateLaunchTemplate"), w.called("CreateFleet"), err)
		}
	})
	t.Run("a label value that would run as a command on the node", func(t *testing.T) {
		for _, family := range []string{"al2", "al2023", "bottlerocket", "windows2022"} {
			w := newWorld(t)
			class := nodeClass("default")
			class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: family + "@latest"}}
			c, claim := w.start(w.config("uid-1")), claim("general-1", onDemand, in("example.com/team", "x'$(touch /tmp/pwn)'"))
			resolve(t, c, class)
			_, err := c.Launch(t.Context(), claim, class)
			var failed *cloudprovider.CreateError
			if !errors.As(err, &failed) || failed.Reason != "UserDataNotEncodable" ||
				!strings.Contains(failed.Message, `label "example.com/team"`) {
				t.Errorf("%s: %v", family, err)
			}
			if w.called("CreateLaunchTemplate") != 0 || len(w.runningInstances()) != 0 {
				t.Errorf("%s: %d launch templates, %d instances", family, w.called("CreateLaunchTemplate"), len(w.runningInstances()))
			}
		}
	})
	t.Run("a label that a kubelet may not ask for", func(t *testing.T) {
		w := newWorld(t)
		c, class, claim := w.start(w.config("uid-1")), nodeClass("default"), claim("general-1", onDemand)
		resolve(t, c, class)
		claim.Labels["foo.kubernetes.io/bar"], claim.Labels["team"] = "x", "a"
		mentions(
			t,
			w.booted(c, claim, class),
			map[string]bool{
				"foo.kubernetes.io/bar":                false,
				"team=a":                               true,
				"karpenter.sh/do-not-sync-taints=true": true,
				"karpenter.sh/capacity-type=on-demand": true,
			},
		)
	})
	t.Run("invalid TOML", func(t *testing.T) {
		w := newWorld(t)
		c, class := w.start(w.config("uid-1")), nodeClass("default")
		class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
		class.Spec.UserData = "echo hello"
		resolve(t, c, class)
		_, err := c.Launch(t.Context(), claim("general-1", onDemand), class)
		var failed *cloudprovider.CreateError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), "spec.userData: parse TOML") || w.called("CreateLaunchTemplate") != 0 {
			t.Errorf("%d launch templates, error %v", w.called("CreateLaunchTemplate"), err)
		}
	})
	t.Run("a startup taint equal to the unregistered taint", func(t *testing.T) {
		w := newWorld(t)
		c, class, claim := w.start(w.config("uid-1")), nodeClass("default"), claim("general-1", onDemand)
		resolve(t, c, class)
		claim.Spec.StartupTaints = []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}}
		if i := w.booted(c, claim, class); strings.Count(string(i.UserData), "karpenter.sh/unregistered") != 1 {
			t.Errorf("the taint is not there once\n%s", i.UserData)
		}
	})
	t.Run("family Custom", func(t *testing.T) {
		w := newWorld(t)
		c, class := w.start(w.config("uid-1")), nodeClass("default")
		class.Spec.AMIFamily, class.Spec.UserData = awsv1.AMIFamilyCustom, "#cloud-config\r\nruncmd: []\n"
		resolve(t, c, class)
		if i := w.booted(c, claim("general-1", onDemand), class); string(i.UserData) != class.Spec.UserData {
			t.Errorf("user data %q, want the user's own", i.UserData)
		}
	})
	t.Run("Bottlerocket of a release that binds directories by itself, and of one of a name that does not tell", func(t *testing.T) {
		w := newWorld(t)
		c, class := w.start(w.config("uid-1")), nodeClass("default")
		class.Spec.InstanceStorePolicy = awsv1.InstanceStoreRAID0
		class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "bottlerocket@v1.58.0"}}
		resolve(t, c, class)
		disks := in(corev1.LabelInstanceTypeStable, "m5d.large")
		mentions(t, w.booted(c, claim("general-1", onDemand, disks), class), map[string]bool{"'ephemeral-storage', 'bind']": true})
		class.Spec.AMIFamily, class.Spec.AMISelectorTerms = awsv1.AMIFamilyBottlerocket, []awsv1.AMISelectorTerm{{SSMParameter: "/ours"}}
		if err := w.Sim.SSM().Put("/ours", class.Status.AMIs[0].ID); err != nil {
			t.Fatal(err)
		}
		class.Generation++
		class.Status.AMIs = nil
		resolve(t, c, class)
		class.Status.AMIs[0].Name = "ours"
		mentions(t, w.booted(c, claim("general-2", onDemand, disks), class), map[string]bool{"'bind', '--dirs', '/var/lib/containerd'": true})
	})
}

func TestUserDataAndLaunchTemplates(t *testing.T) {
	t.Run("different maxPods per type", func(t *testing.T) {
		w := newWorld(t)
		c, class := w.start(w.config("uid-1")), nodeClass("default")
		resolve(t, c, class)
		// 29, 29 and 58 pods.
		types := in(corev1.LabelInstanceTypeStable, "m5.large", "c5.large", "m5.xlarge")
		if _, err := c.Launch(t.Context(), claim("general-1", onDemand, types), class); err != nil {
			t.Fatal(err)
		}
		if n := w.succeeded("CreateLaunchTemplate"); n != 2 {
			t.Errorf("%d launch templates, want one for 29 pods and one for 58", n)
		}
		class.Spec.Kubelet, class.Generation = &runtime.RawExtension{Raw: []byte(`{"maxPods": 20}`)}, 2
		resolve(t, c, class)
		if _, err := c.Launch(t.Context(), claim("general-2", onDemand, types), class); err != nil {
			t.Fatal(err)
		}
		if n := w.succeeded("CreateLaunchTemplate"); n != 3 {
			t.Errorf("%d launch templates, want one more for 20 pods", n)
		}
	})
	for family, templates := range map[string]int{awsv1.AMIFamilyCustom: 1, awsv1.AMIFamilyAL2023: 3} {
		t.Run("only CA bundle or labels differ, family "+family, func(t *testing.T) {
			w := newWorld(t)
			class := nodeClass("default")
			class.Spec.AMIFamily = family
			other := w.config("uid-1")
			other.Cluster.Endpoint, other.Cluster.CABundle = endpoint, base64.StdEncoding.EncodeToString(certificate(t))
			labelled := claim("general-3", onDemand)
			labelled.Labels["team"] = "a"
			for _, launch := range []struct {
				cloud *cloud
				claim *karpv1.NodeClaim
			}{
				{w.start(w.config("uid-1")), claim("general-1", onDemand)},
				{w.start(other), claim("general-2", onDemand)},
				{w.start(w.config("uid-1")), labelled},
			} {
				resolve(t, launch.cloud, class)
				types := in(corev1.LabelInstanceTypeStable, "m5.large")
				launch.claim.Spec.Requirements = append(launch.claim.Spec.Requirements, types)
				w.booted(launch.cloud, launch.claim, class)
			}
			if n := w.succeeded("CreateLaunchTemplate"); n != templates {
				t.Errorf("%d launch templates, want %d", n, templates)
			}
		})
	}
}
