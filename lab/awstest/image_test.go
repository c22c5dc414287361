package awstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// imageWorld is a world with images and one EC2NodeClass that selects them.
type imageWorld struct {
	*world
	cloud *cloud
	class *awsv1.EC2NodeClass
}

func imagesBy(t *testing.T, family string, terms ...awsv1.AMISelectorTerm) *imageWorld {
	t.Helper()
	w := newWorld(t)
	class := nodeClass("default")
	class.Spec.AMIFamily, class.Spec.AMISelectorTerms = family, terms
	return &imageWorld{world: w, cloud: w.start(w.config("uid-1")), class: class}
}

// look resolves the class, later than what was found is believed. It returns what AMIsReady is, with its reason if it
// is not True.
func (w *imageWorld) look() (condition string, err error) {
	w.Clock.Advance(5 * time.Minute)
	r := w.cloud.ResolveNodeClass(w.t.Context(), w.class)
	w.class.Status = r.Status
	c := conditionOf(r, awsv1.ConditionAMIsReady)
	if c.Status == metav1.ConditionTrue {
		return "True", r.Err
	}
	return strings.TrimSpace(string(c.Status) + " " + c.Reason), r.Err
}

// found looks and returns the names of the images, in order, each with the hardware that it is for.
func (w *imageWorld) found() []string {
	w.t.Helper()
	if condition, err := w.look(); condition != "True" || err != nil {
		w.t.Fatalf("AMIsReady is %s, %v", condition, err)
	}
	var out []string
	for _, ami := range w.class.Status.AMIs {
		s := ami.Name
		for _, r := range ami.Requirements {
			_, key, _ := strings.Cut(r.Key, "/")
			s += fmt.Sprintf(
				" %s%s%s",
				strings.TrimPrefix(key, "instance-"),
				map[string]string{"In": "=", "Exists": "", "DoesNotExist": "!"}[r.Operator],
				strings.Join(r.Values, ","),
			)
		}
		out = append(out, s)
	}
	return out
}

func (w *imageWorld) expect(want ...string) {
	w.t.Helper()
	if got := w.found(); !slices.Equal(got, want) {
		w.t.Errorf("images\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// has is expect without regard to the order: releases of one second are in that of their IDs.
func (w *imageWorld) has(want ...string) {
	w.t.Helper()
	if got := slices.Sorted(slices.Values(w.found())); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		w.t.Errorf("images\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// own adds an image of the account's.
func (w *imageWorld) own(name, arch string, day int, tags map[string]string) string {
	return w.Sim.EC2().AddImage(image.Image{
		Name: name, Architecture: arch, RootDevice: "/dev/xvda", Created: time.Date(2026, 8, day, 12, 0, 0, 0, time.UTC),
	}, tags)
}

// describeImages are the parameters of the last such call.
func (w *imageWorld) lastDescribe() map[string][]string {
	for _, c := range slices.Backward(w.Sim.Calls()) {
		if c.Action == "DescribeImages" {
			return c.Parameters
		}
	}
	return nil
}

func TestImagesOfAliases(t *testing.T) {
	t.Run("al2", func(t *testing.T) {
		imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "al2@latest"}).has(
			"amazon-eks-gpu-node-1.32-v20260715 arch=amd64 gpu-count",
			"amazon-eks-gpu-node-1.32-v20260715 arch=amd64 accelerator-count",
			"amazon-eks-arm64-node-1.32-v20260715 arch=arm64 gpu-count! accelerator-count!",
			"amazon-eks-node-1.32-v20260715 arch=amd64 gpu-count! accelerator-count!",
		)
	})
	t.Run("al2023, of a release", func(t *testing.T) {
		imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "al2023@v20260610"}).has(
			"amazon-eks-node-al2023-x86_64-neuron-1.32-v20260610 arch=amd64 accelerator-count",
			"amazon-eks-node-al2023-arm64-standard-1.32-v20260610 arch=arm64 gpu-count! accelerator-count!",
			"amazon-eks-node-al2023-arm64-nvidia-1.32-v20260610 arch=arm64 gpu-count",
			"amazon-eks-node-al2023-x86_64-standard-1.32-v20260610 arch=amd64 gpu-count! accelerator-count!",
			"amazon-eks-node-al2023-x86_64-nvidia-1.32-v20260610 arch=amd64 gpu-count",
		)
	})
	t.Run("bottlerocket", func(t *testing.T) {
		imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "bottlerocket@v1.58.0"}).has(
			"bottlerocket-aws-k8s-1.32-x86_64-v1.58.0-3d1ff8a2 arch=amd64 gpu-count! accelerator-count!",
			"bottlerocket-aws-k8s-1.32-x86_64-v1.58.0-3d1ff8a2 arch=amd64 accelerator-count",
			"bottlerocket-aws-k8s-1.32-nvidia-arm64-v1.58.0-3d1ff8a2 arch=arm64 gpu-count",
			"bottlerocket-aws-k8s-1.32-arm64-v1.58.0-3d1ff8a2 arch=arm64 gpu-count! accelerator-count!",
			"bottlerocket-aws-k8s-1.32-nvidia-x86_64-v1.58.0-3d1ff8a2 arch=amd64 gpu-count",
		)
	})
	t.Run("windows", func(t *testing.T) {
		imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "windows2022@latest"}).has(
			"Windows_Server-2022-English-Core-EKS_Optimized-1.32-2026.07.15 os=windows arch=amd64 windows-build=10.0.20348")
	})
}

func TestImages(t *testing.T) {
	const parameters = "/aws/service/eks/optimized-ami/1.32/amazon-linux-2023/"
	team := map[string]string{"team": "a"}

	t.Run("the parameter of one variant is missing", func(t *testing.T) {
		w := imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "al2023@latest"})
		w.Sim.SSM().Withdraw(parameters + "x86_64/neuron/recommended/image_id")
		if got := w.found(); len(got) != 4 || strings.Contains(strings.Join(got, " "), "neuron") {
			t.Errorf("images %v, want those of the other four", got)
		}
	})
	t.Run("all parameters are missing", func(t *testing.T) {
		w := imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "al2023@v20991231"})
		if condition, _ := w.look(); condition != "False UnsupportedAlias" {
			t.Errorf("AMIsReady is %s", condition)
		}
	})
	t.Run("all parameters are withheld", func(t *testing.T) {
		w := imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "al2023@latest"})
		w.Sim.Inject(
			awsim.Fault{
				Service: "ssm",
				Action:  "GetParameter",
				Times:   5,
				Error:   protocol.Errorf("AccessDeniedException", "not authorized to perform: ssm:GetParameter").WithStatus(400),
			},
		)
		if condition, err := w.look(); condition != "unchanged" || err == nil || !strings.Contains(err.Error(), "ssm:GetParameter") {
			t.Errorf("AMIsReady is %s, error %v", condition, err)
		}
	})
	t.Run("a custom parameter is missing", func(t *testing.T) {
		w := imagesBy(
			t,
			"AL2023",
			awsv1.AMISelectorTerm{SSMParameter: "/no/such"},
			awsv1.AMISelectorTerm{SSMParameter: "/ours/text"},
			awsv1.AMISelectorTerm{SSMParameter: "/ours/golden"},
		)
		id := w.own("mine", "arm64", 1, nil)
		for name, value := range map[string]string{"/ours/text": "not an image", "/ours/golden": id} {
			if err := w.Sim.SSM().Put(name, value); err != nil {
				t.Fatal(err)
			}
		}
		w.expect("mine arch=arm64")
	})
	t.Run("a custom parameter is withheld", func(t *testing.T) {
		w := imagesBy(t, "AL2023", awsv1.AMISelectorTerm{SSMParameter: "/ours/golden"})
		w.Sim.Inject(
			awsim.Fault{
				Service: "ssm",
				Action:  "GetParameter",
				Error:   protocol.Errorf("AccessDeniedException", "not authorized").WithStatus(400),
			},
		)
		if condition, err := w.look(); condition != "unchanged" || err == nil {
			t.Errorf("AMIsReady is %s, error %v", condition, err)
		}
	})
	t.Run("a newer deprecated and an older live image", func(t *testing.T) {
		w := imagesBy(t, "AL2023", awsv1.AMISelectorTerm{Tags: team})
		w.own("old", "x86_64", 1, team)
		w.Sim.EC2().DeprecateImage(w.own("new", "x86_64", 2, team))
		w.expect("old arch=amd64")
	})
	t.Run("both are deprecated", func(t *testing.T) {
		w := imagesBy(t, "AL2023", awsv1.AMISelectorTerm{Tags: team})
		for day, name := range []string{"old", "new"} {
			w.Sim.EC2().DeprecateImage(w.own(name, "x86_64", day+1, team))
		}
		w.expect("new arch=amd64")
		if !w.class.Status.AMIs[0].Deprecated {
			t.Error("status does not say that the image is deprecated")
		}
	})
	t.Run("same date, different names", func(t *testing.T) {
		w := imagesBy(t, "AL2023", awsv1.AMISelectorTerm{Tags: team})
		for _, name := range []string{"a", "c", "b"} {
			w.own(name, "x86_64", 1, team)
		}
		w.expect("c arch=amd64")
	})
	t.Run("a name without owner", func(t *testing.T) {
		w := imagesBy(t, "AL2023", awsv1.AMISelectorTerm{Name: "amazon-eks-node-al2023-x86_64-standard-1.32-*"})
		w.expect("amazon-eks-node-al2023-x86_64-standard-1.32-v20260715 arch=amd64")
		w.own("amazon-eks-node-al2023-x86_64-standard-1.32-ours", "x86_64", 1, nil)
		w.expect("amazon-eks-node-al2023-x86_64-standard-1.32-ours arch=amd64")
		p := w.lastDescribe()
		if owners := []string{p["Owner.1"][0], p["Owner.2"][0]}; !slices.Equal(owners, []string{"self", "amazon"}) || p["Owner.3"] != nil {
			t.Errorf("owners %v", owners)
		}
	})
	t.Run("a name with owner", func(t *testing.T) {
		w := imagesBy(t, "AL2023", awsv1.AMISelectorTerm{Name: "amazon-eks-node-al2023-x86_64-standard-1.32-*", Owner: "self"})
		w.own("amazon-eks-node-al2023-x86_64-standard-1.32-ours", "x86_64", 1, nil)
		w.class.Spec.AMISelectorTerms[0].Owner = "amazon"
		w.expect("amazon-eks-node-al2023-x86_64-standard-1.32-v20260715 arch=amd64")
	})
	t.Run("tags only", func(t *testing.T) {
		w := imagesBy(t, "AL2023", awsv1.AMISelectorTerm{Tags: map[string]string{"team": "*"}})
		w.own("tagged", "x86_64", 1, team)
		w.own("untagged", "x86_64", 2, nil)
		w.expect("tagged arch=amd64")
		if p := w.lastDescribe(); p["Owner.1"] != nil || p["IncludeDeprecated"][0] != "true" || p["MaxResults"][0] != "1000" {
			t.Errorf("%v", p)
		}
	})
	t.Run("IDs, and an architecture that no node has", func(t *testing.T) {
		w := imagesBy(t, "AL2023", awsv1.AMISelectorTerm{}, awsv1.AMISelectorTerm{}, awsv1.AMISelectorTerm{})
		for i, arch := range []string{"x86_64", "arm64", "i386"} {
			w.class.Spec.AMISelectorTerms[i].ID = w.own(arch, arch, i+1, nil)
		}
		w.expect("arm64 arch=arm64", "x86_64 arch=amd64")
	})
	t.Run("a mutable parameter points to a deprecated image", func(t *testing.T) {
		w := imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "windows2022@latest"})
		w.expect("Windows_Server-2022-English-Core-EKS_Optimized-1.32-2026.07.15 os=windows arch=amd64 windows-build=10.0.20348")
		calls := w.called("GetParameter")
		w.found()
		if again := w.called("GetParameter"); again != calls {
			t.Errorf("SSM got %d more calls without a change", again-calls)
		}
		// AWS releases another image. It is not looked for before the old one is deprecated.
		const parameter = "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.32/image_id"
		successor := w.own("successor", "x86_64", 3, nil)
		old := w.class.Status.AMIs[0].ID
		w.Sim.SSM().Publish(parameter, successor)
		w.found()
		if w.class.Status.AMIs[0].ID != old {
			t.Error("the image changed though the old one is still good")
		}
		w.Sim.EC2().DeprecateImage(old)
		w.found() // this look finds it deprecated, the next one its successor
		w.expect("successor os=windows arch=amd64 windows-build=10.0.20348")
	})
	t.Run("a pinned release stays", func(t *testing.T) {
		w := imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "al2@v20260610"})
		w.found()
		w.Sim.EC2().DeprecateImage(w.class.Status.AMIs[0].ID)
		calls := w.called("GetParameter")
		w.found()
		w.found()
		if again := w.called("GetParameter"); again != calls {
			t.Errorf("SSM got %d more calls", again-calls)
		}
	})
}

// what exists for no version of Kubernetes is rejected for good, in words that report what to do.
// A rollback has the images that are known to be good, each by its ID, for the generation and the images that it was decided for, and only
// while EC2 has all of them.
func TestRolledBackImages(t *testing.T) {
	w := imagesBy(t, "", awsv1.AMISelectorTerm{Alias: "al2023@v20260610"})
	w.found()
	good := awsv1.KnownGood{AMIs: w.class.Status.AMIs}
	w.class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "al2023@v20260715"}}
	w.class.Generation++
	w.found()
	bad := awsv1.ImageIDs(w.class.Status.AMIs)
	annotate := func(key string, value any) {
		if _, err := w.class.Annotate(key, value); err != nil {
			t.Fatal(err)
		}
	}
	uses := func(want []string, when string) {
		w.found()
		if got := awsv1.ImageIDs(w.class.Status.AMIs); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	annotate(awsv1.AnnotationKnownGood, good)
	uses(bad, "known, and not rolled back")
	annotate(awsv1.AnnotationRollback, awsv1.Rollback{From: bad, Generation: w.class.Generation})
	uses(awsv1.ImageIDs(good.AMIs), "rolled back")
	annotate(awsv1.AnnotationRollback, awsv1.Rollback{From: bad[1:], Generation: w.class.Generation})
	uses(bad, "rolled back from other images")
	annotate(awsv1.AnnotationRollback, awsv1.Rollback{From: bad, Generation: w.class.Generation - 1})
	uses(bad, "rolled back in another generation")
	annotate(awsv1.AnnotationRollback, awsv1.Rollback{From: bad, Generation: w.class.Generation})
	annotate(awsv1.AnnotationKnownGood, awsv1.KnownGood{AMIs: append(good.AMIs, awsv1.AMI{ID: "ami-0123456789abcdef0"})})
	uses(bad, "an image that EC2 no longer has")
}

func TestUnsupportedAliases(t *testing.T) {
	for _, tc := range []struct{ alias, version, says string }{
		{"al2@latest", "1.33", "use al2023 or bottlerocket"},
		{"windows2025@latest", "1.34", "begin with 1.35"},
	} {
		t.Run(""+tc.alias+" on "+tc.version, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config("uid-1")
			cfg.KubernetesVersion = tc.version
			c := w.start(cfg)
			class := nodeClass("default")
			class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: tc.alias}}
			r := c.ResolveNodeClass(t.Context(), class)
			got := conditionOf(r, awsv1.ConditionAMIsReady)
			if got.Status != metav1.ConditionFalse || got.Reason != "UnsupportedAlias" || !strings.Contains(got.Message, tc.says) ||
				r.Err != nil {
				t.Errorf("%+v, %v", got, r.Err)
			}
			if n := w.called("GetParameter"); n != 0 {
				t.Errorf("SSM got %d calls", n)
			}
		})
	}
}

// Resolved images are cached for the refresh interval, and longer for aliases that SSM resolves.
func TestImageCacheExpires(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("uid-1")
	cfg.AMIRefresh = 10 * time.Minute
	c := w.start(cfg)
	class := nodeClass("default")
	for _, step := range []struct {
		after            time.Duration
		describes, reads int
	}{{0, 1, 5}, {9 * time.Minute, 1, 5}, {2 * time.Minute, 2, 5}, {24 * time.Hour, 3, 10}} {
		w.Clock.Advance(step.after)
		resolve(t, c, class)
		if d, r := w.called("DescribeImages"), w.called("GetParameter"); d != step.describes || r != step.reads {
			t.Errorf("after %v more: %d calls to EC2, %d to SSM; want %d, %d", step.after, d, r, step.describes, step.reads)
		}
	}
	class.Spec.AMISelectorTerms, class.Generation = []awsv1.AMISelectorTerm{{Alias: "bottlerocket@latest"}}, 2
	resolve(t, c, class)
	if d := w.called("DescribeImages"); d != 4 {
		t.Errorf("an edited class got a cached answer: %d calls to EC2", d)
	}
}

// The image of an instance suits its architecture and its accelerators.
func TestInstancesGetTheImageForTheirHardware(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	names := map[string]string{}
	for _, i := range image.List("us-east-1") {
		names[i.ID] = i.Name
	}
	for instanceType, want := range map[string]string{
		"m5.large": "x86_64-standard", "m7g.large": "arm64-standard", "g5.xlarge": "x86_64-nvidia", "g5g.xlarge": "arm64-nvidia",
		"inf2.xlarge": "x86_64-neuron",
	} {
		got, err := c.Launch(
			t.Context(),
			claim("general-"+strings.ReplaceAll(instanceType, ".", "-"), onDemand, in(corev1.LabelInstanceTypeStable, instanceType)),
			class,
		)
		if err != nil {
			t.Errorf("%s: %v", instanceType, err)
			continue
		}
		if name := names[got.ImageID]; !strings.Contains(name, want) {
			t.Errorf("%s has the image %s, want %s", instanceType, name, want)
		}
	}
}
