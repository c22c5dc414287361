package nodeclass

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/expression"
	"github.com/dovetail-k8s/dovetail/internal/aws/kubeletconfig"
)

// Problem states why a node class is not valid. The zero Problem means that it is.
type Problem struct{ Reason, Message string }

// CheckKubelet validates spec.kubelet; the first broken rule decides. Expressions are evaluated elsewhere, since their result
// depends on the instance types. Fields that an image family has no setting for are ignored, see ignoredFields.
func CheckKubelet(class *awsv1.EC2NodeClass, expressions bool) Problem {
	if class.Spec.Kubelet == nil || len(class.Spec.Kubelet.Raw) == 0 {
		return Problem{}
	}
	if err := kubeletconfig.Check(class.Spec.Kubelet.Raw); err != nil {
		return Problem{"InvalidKubeletConfiguration", "spec.kubelet: " + strings.ReplaceAll(err.Error(), "\n", "; ")}
	}
	kubelet, err := class.KubeletConfiguration()
	if err != nil {
		return Problem{"InvalidKubeletConfiguration", err.Error()}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(class.Spec.Kubelet.Raw, &fields); err != nil {
		return Problem{"InvalidKubeletConfiguration", fmt.Sprintf("spec.kubelet: %v", err)}
	}
	if message := invalidKubelet(kubelet, fields); message != "" {
		return Problem{"InvalidKubeletConfiguration", "spec.kubelet: " + message}
	}
	if fields := slices.Sorted(maps.Keys(expression.Find(kubelet))); len(fields) > 0 && !expressions {
		return Problem{"KubeletExpressionsDisabled", fmt.Sprintf(
			"spec.kubelet.%s is an expression; expressions need --aws-feature-gates NodeClassCEL=true", fields[0])}
	}
	return Problem{}
}

// ignoredFields describes the fields of a class that have no effect; empty if there are none.
func ignoredFields(class *awsv1.EC2NodeClass) string {
	var notes []string
	family := "image family " + class.ImageFamily()
	if fields := class.IgnoredKubeletFields(); len(fields) > 0 {
		notes = append(notes, family+" has no setting for spec.kubelet."+strings.Join(fields, ", spec.kubelet.")+"; ignored")
	}
	if class.IgnoresClusterDNS() {
		notes = append(notes, family+" takes one entry of spec.kubelet.clusterDNS; the others are ignored")
	}
	return strings.Join(notes, "; ")
}

// invalidKubelet describes the first value that a kubelet rejects; empty if there is none.
func invalidKubelet(k awsv1.KubeletConfiguration, fields map[string]json.RawMessage) string {
	if _, set := fields["registerWithTaints"]; set {
		return "registerWithTaints must not be set: use the taints of the NodePool"
	}
	for i, address := range k.ClusterDNS {
		if why := bootstrap.UnsafeAddress(address); why != "" {
			return fmt.Sprintf("clusterDNS[%d] is %q, which is not an address: %s", i, address, why)
		}
	}
	if k.MaxPods != nil && k.MaxPods.Type == intstr.Int && k.MaxPods.IntVal < 0 {
		return "maxPods is negative"
	}
	if message := cmp.Or(
		outside("podsPerCore", k.PodsPerCore, math.MaxInt32), outside("evictionMaxPodGracePeriod", k.EvictionMaxPodGracePeriod, math.MaxInt32),
		outside("imageGCHighThresholdPercent", k.ImageGCHighThresholdPercent, 100), outside("imageGCLowThresholdPercent",
			k.ImageGCLowThresholdPercent, 100),
		invalidEviction(k),
	); message != "" {
		return message
	}
	for _, reserved := range []struct {
		name   string
		values map[string]string
	}{{"kubeReserved", k.KubeReserved}, {"systemReserved", k.SystemReserved}} {
		for _, key := range slices.Sorted(maps.Keys(reserved.values)) {
			if !slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, key) {
				return fmt.Sprintf("%s has the unknown key %q", reserved.name, key)
			}
			if strings.HasPrefix(reserved.values[key], "-") {
				return fmt.Sprintf("%s.%s is negative", reserved.name, key)
			}
		}
	}
	if !maps.EqualFunc(k.EvictionSoft, k.EvictionSoftGracePeriod, func(string, string) bool { return true }) {
		return "evictionSoft and evictionSoftGracePeriod must have the same keys"
	}
	if k.ImageGCHighThresholdPercent != nil && k.ImageGCLowThresholdPercent != nil &&
		*k.ImageGCHighThresholdPercent <= *k.ImageGCLowThresholdPercent {
		return "imageGCHighThresholdPercent must be above imageGCLowThresholdPercent"
	}
	return ""
}

// outside describes a number that is not from 0 to most; empty if it is, or is not set.
func outside(name string, n *int32, most int32) string {
	switch {
	case n == nil || *n >= 0 && *n <= most:
		return ""
	case *n < 0:
		return name + " is negative"
	}
	return fmt.Sprintf("%s is above %d", name, most)
}

// signals are the eviction signals of the kubelet.
var signals = []string{
	"memory.available",
	"nodefs.available",
	"nodefs.inodesFree",
	"imagefs.available",
	"imagefs.inodesFree",
	"pid.available",
}

// invalidEviction describes the first eviction threshold that a kubelet rejects; empty if there is none.
func invalidEviction(k awsv1.KubeletConfiguration) string {
	for _, list := range []struct {
		name   string
		values map[string]string
		valid  func(string) bool
		what   string
	}{
		{"evictionHard", k.EvictionHard, isThreshold, "neither a quantity nor a percentage from 0 to 100"},
		{"evictionSoft", k.EvictionSoft, isThreshold, "neither a quantity nor a percentage from 0 to 100"},
		{"evictionMinimumReclaim", k.EvictionMinimumReclaim, isThreshold, "neither a quantity nor a percentage from 0 to 100"},
		{"evictionSoftGracePeriod", k.EvictionSoftGracePeriod, isGrace, "not a duration"},
	} {
		for _, signal := range slices.Sorted(maps.Keys(list.values)) {
			if !slices.Contains(signals, signal) {
				return fmt.Sprintf("%s has the unknown signal %q", list.name, signal)
			}
			if value := list.values[signal]; !list.valid(value) {
				return fmt.Sprintf("%s.%s: %q is %s", list.name, signal, value, list.what)
			}
		}
	}
	return ""
}

func isThreshold(text string) bool {
	if percentage, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(percentage, 64)
		return err == nil && percent >= 0 && percent <= 100
	}
	q, err := resource.ParseQuantity(text)
	return err == nil && q.Sign() >= 0
}

func isGrace(text string) bool {
	d, err := time.ParseDuration(text)
	return err == nil && d >= 0
}

// shownTypes sets how many instance types a message names: enough to recognize a family, short enough for a condition.
const shownTypes = 5

// checkExpressions validates the expressions of spec.kubelet. note names the instance types that are left out because an
// expression fails for them: a type that EC2 has just introduced must not make the class invalid for all others.
func (r *resolution) checkExpressions(ctx context.Context, class *awsv1.EC2NodeClass) (problem Problem, note string, err error) {
	failing, of, err := r.Inventory.FailingExpressions(ctx, class)
	var invalid *expression.InvalidError
	var failed *expression.FailedError
	switch {
	case errors.As(err, &invalid):
		return Problem{"KubeletExpressionInvalid", err.Error()}, "", nil
	case errors.As(err, &failed) && len(failing) == of:
		return Problem{"KubeletExpressionEvaluationFailed", err.Error()}, "", nil
	case errors.As(err, &failed):
		names := strings.Join(failing[:min(len(failing), shownTypes)], ", ")
		if more := len(failing) - shownTypes; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		return Problem{}, fmt.Sprintf("%v; not launched because of it: %s", err, names), nil
	}
	return Problem{}, "", err
}
