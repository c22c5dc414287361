package awstest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func kubelet(text string) func(*awsv1.EC2NodeClass) {
	return func(c *awsv1.EC2NodeClass) { c.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(text)} }
}

// validated returns whether a class with these kubelet settings is valid, and why not.
func kubeletCondition(t *testing.T, c *cloud, text string) (status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	class := nodeClass("default")
	kubelet(text)(class)
	got := conditionOf(c.ResolveNodeClass(t.Context(), class), awsv1.ConditionValidationSucceeded)
	return got.Status, got.Reason, got.Message
}

func TestKubeletExpressionsOfANodeClass(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("uid-1")
	t.Run("gate off, string maxPods", func(t *testing.T) {
		if status, reason, _ := kubeletCondition(t, w.start(cfg), `{"maxPods": "vcpus * 10"}`); status != metav1.ConditionFalse ||
			reason != "KubeletExpressionsDisabled" {
			t.Errorf("%s, %s", status, reason)
		}
	})
	cfg.KubeletExpressions = true
	c := w.start(cfg)
	for _, tt := range []struct {
		name, kubelet string
		status        metav1.ConditionStatus
		reason        string
		message       []string
	}{
		{
			"all is well", `{"maxPods": "vcpus * 10", "kubeReserved": {"memory": "11 * max_pods + 255"}}`, metav1.ConditionTrue,
			awsv1.ConditionValidationSucceeded, nil,
		},
		{"does not compile", `{"maxPods": "cores * 10"}`, metav1.ConditionFalse, "KubeletExpressionInvalid", []string{
			"spec.kubelet.maxPods",
			"undeclared reference to 'cores'",
		}},
		{
			"no number", `{"systemReserved": {"cpu": "vcpus > 2"}}`, metav1.ConditionFalse, "KubeletExpressionInvalid",
			[]string{"spec.kubelet.systemReserved.cpu"},
		},
		{
			"fails for every type", `{"maxPods": "0 - 1"}`, metav1.ConditionFalse, "KubeletExpressionEvaluationFailed",
			[]string{"-1 is not a valid number of pods"},
		},
		{
			"a negative reservation for every type", `{"kubeReserved": {"cpu": "0 - vcpus"}}`, metav1.ConditionFalse,
			"KubeletExpressionEvaluationFailed",
			[]string{"is negative"},
		},
		{
			"fails for one type", `{"maxPods": "instance_type == 'm5.large' ? 1 / (vcpus - vcpus) : 20"}`, metav1.ConditionTrue,
			awsv1.ConditionValidationSucceeded,
			[]string{"division by zero", "not launched because of it: m5.large"},
		},
		{"an unknown signal", `{"evictionHard": {"memory.free": "5%"}}`, metav1.ConditionFalse, "InvalidKubeletConfiguration", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, reason, message := kubeletCondition(t, c, tt.kubelet)
			if status != tt.status || reason != tt.reason {
				t.Errorf("%s, %s: %s", status, reason, message)
			}
			for _, part := range tt.message {
				if !strings.Contains(message, part) {
					t.Errorf("%q does not say %q", message, part)
				}
			}
		})
	}
}

// The value of an expression is in the node's user data and in the planned capacity.
func TestLaunchWithKubeletExpressions(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("uid-1")
	cfg.KubeletExpressions = true
	c := w.start(cfg)
	for _, tt := range []struct {
		alias string
		told  []string
	}{
		{"al2023@latest", []string{"maxPods: 16", "memory: 448Mi", "cpu: 120m", "topologyManagerPolicy: best-effort"}},
		{"al2@latest", []string{"--max-pods=16", `--kube-reserved="cpu=120m,memory=448Mi"`}},
		{"bottlerocket@latest", []string{"max-pods = 16", "memory = '448Mi'"}},
	} {
		t.Run(tt.alias, func(t *testing.T) {
			class := nodeClass(strings.TrimSuffix(tt.alias, "@latest"))
			class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: tt.alias}}
			more := ""
			if strings.HasPrefix(tt.alias, "al2023") {
				more = `, "topologyManagerPolicy": "best-effort"`
			}
			kubelet(`{"maxPods": "vcpus * 8", "kubeReserved": {"memory": "11 * max_pods + 260", "cpu": "120m"}` + more + `}`)(class)
			resolve(t, c, class)
			got, err := c.Launch(t.Context(), claim("of-"+class.Name, onDemand, in(corev1.LabelInstanceTypeStable, "m5.large")), class)
			if err != nil {
				t.Fatal(err)
			}
			if pods := got.Capacity.Pods().Value(); pods != 16 {
				t.Errorf("%d pods are planned on", pods)
			}
			capacity, left := got.Capacity[corev1.ResourceMemory], got.Allocatable[corev1.ResourceMemory]
			capacity.Sub(left)
			if want := resource.MustParse("548Mi"); capacity.Cmp(want) != 0 { // and 100Mi that must stay free
				t.Errorf("%s of memory are withheld, want %s", capacity.String(), want.String())
			}
			w.advancePastDelays()
			for _, i := range w.runningInstances() {
				if !strings.HasSuffix(got.ProviderID, i.ID) {
					continue
				}
				for _, part := range tt.told {
					if !strings.Contains(string(i.UserData), part) {
						t.Errorf("user data without %q:\n%s", part, i.UserData)
					}
				}
			}
		})
	}
}

// memoryOf is how much memory nodes of the type are planned with.
func memoryOf(t *testing.T, c *cloud, class *awsv1.EC2NodeClass, name string) resource.Quantity {
	t.Helper()
	types, err := c.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	return *typeNamed(t, types, name).Capacity.Memory()
}

func TestMemoryThatWasSeen(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	got, err := c.Launch(t.Context(), claim("general-1", onDemand, in(corev1.LabelInstanceTypeStable, "m5.large")), class)
	if err != nil {
		t.Fatal(err)
	}
	estimate := memoryOf(t, c, class, "m5.large")
	seen := func(image, memory string) {
		t.Helper()
		if err := c.NodeSeen(t.Context(), class, "m5.large", image, resource.MustParse(memory)); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got := memoryOf(t, c, class, "m5.large"); got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("planned with %s, want %s", got.String(), want)
		}
	}
	t.Run("an image that is no longer mapped", func(t *testing.T) {
		seen("ami-0123456789abcdef0", "7000Mi")
		expect(estimate.String())
	})
	t.Run("two smaller values, then a larger", func(t *testing.T) {
		seen(got.ImageID, "7700Mi")
		expect("7700Mi")
		seen(got.ImageID, "7686Mi")
		seen(got.ImageID, "7800Mi")
		expect("7686Mi")
		if other := memoryOf(t, c, class, "m5.xlarge"); other.Cmp(resource.MustParse("15155Mi")) != 0 {
			t.Errorf("m5.xlarge is planned with %s", other.String())
		}
	})
	t.Run("the images of the class change", func(t *testing.T) {
		class.Status.AMIs = append(class.Status.AMIs[:0:0], class.Status.AMIs...)
		for i := range class.Status.AMIs {
			class.Status.AMIs[i].ID = strings.Replace(class.Status.AMIs[i].ID, "ami-", "ami-f", 1)
		}
		expect(estimate.String())
		seen(strings.Replace(got.ImageID, "ami-", "ami-f", 1), "7650Mi")
		if after := memoryOf(t, c, class, "m5.large"); after.Cmp(estimate) == 0 {
			t.Error("a node of a new image taught nothing")
		}
	})
}

// Prices that were read show at once.
func TestNewPricesShow(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	spot := func() float64 {
		types, err := c.InstanceTypes(t.Context(), class)
		if err != nil {
			t.Fatal(err)
		}
		return offering(t, typeNamed(t, types, "m5.large"), "us-east-1a", "spot").Price
	}
	if got := spot(); got != 0.096 {
		t.Errorf("before the first answer spot costs %v, want what on-demand does", got)
	}
	if err := c.RefreshPrices(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := spot(); got >= 0.096 {
		t.Errorf("spot still costs %v", got)
	}
}

// Without the Pricing API plans are made with what ships with the program, and that is known.
func TestWherePricesComeFrom(t *testing.T) {
	w := newWorld(t)
	t.Run("the Pricing API fails", func(t *testing.T) {
		c := w.start(w.config("uid-1"))
		w.Sim.Inject(
			awsim.Fault{
				Service: "pricing",
				Action:  "GetProducts",
				Times:   100,
				Error:   protocol.Errorf("AccessDeniedException", "not authorized to perform pricing:GetProducts"),
			},
		)
		if err := c.RefreshPrices(t.Context()); err == nil {
			t.Fatal("prices were read")
		}
		state := c.PriceState()
		if s := state[0]; !s.BuiltIn() || s.Err == nil || !strings.Contains(s.Err.Error(), "pricing:GetProducts") {
			t.Errorf("%+v", s)
		}
		if s := state[1]; s.BuiltIn() || s.Err != nil {
			t.Errorf("spot prices were not read: %+v", s)
		}
		w.Sim.ClearFaults()
		if err := c.RefreshPrices(t.Context()); err != nil || c.PriceState()[0].BuiltIn() {
			t.Errorf("%v, %+v", err, c.PriceState())
		}
	})
	t.Run("an isolated VPC", func(t *testing.T) {
		cfg := w.config("uid-1")
		cfg.IsolatedVPC = true
		c := w.start(cfg)
		asked := w.called("GetProducts")
		if err := c.RefreshPrices(t.Context()); err != nil || w.called("GetProducts") != asked {
			t.Errorf("%v, asked %d times", err, w.called("GetProducts")-asked)
		}
		if price, ok := c.Price("m5.large", "us-east-1a", "on-demand"); !ok || price != 0.096 || !c.PriceState()[0].BuiltIn() {
			t.Errorf("m5.large costs %v; %+v", price, c.PriceState()[0])
		}
	})
}

// A partition of a placement group without capacity is left out; the others are not.
func TestPartitionsOfInstanceTypes(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := placing(awsv1.PlacementGroupSelector{ID: w.group("parts", "partition", 3)})
	resolve(t, c, class)
	types, err := c.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, o := range typeNamed(t, types, "m5.large").Offerings {
		partition, _ := o.Requirements.Get(awsv1.LabelPlacementGroupPartition).Single()
		if o.Available {
			found[partition]++
		}
	}
	if len(found) != 3 || found["1"] == 0 || found["1"] != found["3"] {
		t.Errorf("offerings by partition: %v", found)
	}
}
