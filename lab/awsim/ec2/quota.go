package ec2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// standardClass is the quota class of the families A, C, D, H, I, M, R, T and Z.
const standardClass = "standard"

// quotaClasses are those that EC2 counts vCPUs by.
func quotaClasses() []string {
	return []string{standardClass, "dl", "f", "g", "hpc", "inf", "p", "trn", "u", "x"}
}

// quota is what vCPUs are counted by.
type quota struct{ lifecycle, class string }

// quotaClass is the class that an instance type is counted in.
func quotaClass(instanceType string) string {
	letters := instanceType[:strings.IndexFunc(instanceType+"0", func(r rune) bool { return r < 'a' || r > 'z' })]
	switch {
	case strings.HasPrefix(letters, "g"), letters == "vt":
		return "g"
	case slices.Contains(quotaClasses(), letters):
		return letters
	}
	return standardClass
}

// SetQuota limits how many vCPUs of a class run at a time, in instances of a lifecycle: "on-demand" or "spot". A
// negative number lifts the limit.
func (e *EC2) SetQuota(lifecycle, class string, vcpus int) error {
	switch {
	case lifecycle != onDemandLifecycle && lifecycle != spotLifecycle:
		return fmt.Errorf("quota: lifecycle %q is neither spot nor on-demand", lifecycle)
	case !slices.Contains(quotaClasses(), class):
		return fmt.Errorf("quota: class %q is none of %s", class, strings.Join(quotaClasses(), ", "))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.quotas == nil {
		e.quotas = map[quota]int{}
	}
	e.quotas[quota{lifecycle, class}] = vcpus
	if vcpus < 0 {
		delete(e.quotas, quota{lifecycle, class})
	}
	return nil
}

// withinQuota returns an error if n more instances of a launch plan exceed a quota. The lock must be held.
func (e *EC2) withinQuota(o *launchPlan, n int) error {
	q := quota{o.lifecycle, quotaClass(o.instanceType.Name)}
	limit, limited := e.quotas[q]
	if !limited {
		return nil
	}
	used := n * o.instanceType.VCPUs
	for _, r := range e.fleet.list() {
		if (r.State == Pending || r.State == Running) && (quota{r.order.lifecycle, quotaClass(r.Type)}) == q {
			used += r.VCPUs
		}
	}
	switch {
	case used <= limit:
		return nil
	case o.lifecycle == spotLifecycle:
		return protocol.Errorf("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
	}
	return protocol.Errorf(
		"VcpuLimitExceeded",
		"You have requested more vCPU capacity than your current vCPU limit of %d allows for the instance bucket "+
			"that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
		limit,
	)
}
