package ec2

import (
	"slices"
	"strconv"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// nestedVirtualization is the processor feature that lets an instance run virtual machines.
const nestedVirtualization = "nested-virtualization"

// processorFeatures are those that a type has besides what all of its kind have.
func processorFeatures(m *instanceType) []string { return m.Features }

// resolveOptions rejects what the type of a launch plan cannot do, and what names things that the account does not
// have.
func resolveOptions(o *launchPlan, q launchRequest) error {
	if q.data.KeyName != "" {
		return protocol.Errorf("InvalidKeyPair.NotFound", "The key pair '%s' does not exist", q.data.KeyName)
	}
	c := q.data.CPU
	if c == nil {
		return nil
	}
	if c.Nested == "enabled" && !slices.Contains(processorFeatures(o.instanceType), nestedVirtualization) {
		return protocol.Errorf("UnsupportedOperation", "The instance type '%s' does not support nested virtualization.", o.instanceType.Name)
	}
	if c.SEVSNP == "enabled" && !slices.Contains(processorFeatures(o.instanceType), "amd-sev-snp") {
		return protocol.Errorf("UnsupportedOperation", "The instance type '%s' does not support AMD SEV-SNP.", o.instanceType.Name)
	}
	return firstError(
		between("coreCount", c.Cores, 1, max(1, o.instanceType.Cores)),
		between("threadsPerCore", c.Threads, 1, threadsPerCore(o.instanceType.Type)),
	)
}

// vcpus is how many the instances of a launch plan have.
func (o *launchPlan) vcpus() int {
	if c := o.data.CPU; c == nil || c.Cores == nil && c.Threads == nil {
		return o.instanceType.VCPUs
	}
	c := showCPU(o)
	return c.Cores * c.Threads
}

// check rejects spot requests that outlive their instance. Only one-time requests are simulated; these are terminated.
func (s *spotMarketSpec) check() error {
	if s == nil {
		return nil
	}
	if err := firstError(
		oneOf("SpotInstanceType", s.Type, "one-time", "persistent"),
		oneOf("InstanceInterruptionBehavior", s.Interruption, "hibernate", "stop", "terminate"),
	); err != nil {
		return err
	}
	if s.Type == "persistent" || s.Interruption != "" && s.Interruption != "terminate" {
		return protocol.Errorf(
			"UnsupportedOperation",
			"The simulator supports one-time spot requests that are terminated on interruption only",
		)
	}
	if _, err := strconv.ParseFloat(s.MaxPrice, 64); s.MaxPrice != "" && err != nil {
		return invalidValue("Invalid value '%s' for MaxPrice. It must be a number", s.MaxPrice)
	}
	return nil
}

// affordable rejects a spot request that offers less than the price.
func (mk *market) affordable(o *launchPlan) error {
	m := o.data.Market
	if o.lifecycle != spotLifecycle || m == nil || m.Spot == nil || m.Spot.MaxPrice == "" {
		return nil
	}
	limit, err := strconv.ParseFloat(m.Spot.MaxPrice, 64)
	if err != nil {
		return err // it was read before
	}
	return mk.withinPrice(o, limit)
}

// withinPrice rejects a limit below the spot price of a launch plan.
func (m *market) withinPrice(o *launchPlan, limit float64) error {
	if price := m.price(o.pool()); price > limit {
		return protocol.Errorf(
			"SpotMaxPriceTooLow",
			"Your Spot request price of %g is lower than the minimum required Spot request fulfillment price of %g.",
			limit,
			price,
		)
	}
	return nil
}
