package assess

import "github.com/dovetail-k8s/dovetail/internal/doctor"

// Usage describes what the pods request and use, where metrics-server answers.
type Usage struct {
	// Pods are the pods with a measurement. CPU is in cores, memory in bytes.
	Pods            int     `json:"pods"`
	RequestedCPU    float64 `json:"requestedCPU"`
	UsedCPU         float64 `json:"usedCPU"`
	RequestedMemory float64 `json:"requestedMemory"`
	UsedMemory      float64 `json:"usedMemory"`
	// Workloads are the workloads that request most more than they use, by the price of what they do not use.
	Workloads []WorkloadUsage `json:"workloads"`
}

// WorkloadUsage describes what the pods of a workload request and use together.
type WorkloadUsage struct {
	Workload        string  `json:"workload"`
	Pods            int     `json:"pods"`
	RequestedCPU    float64 `json:"requestedCPU"`
	UsedCPU         float64 `json:"usedCPU"`
	RequestedMemory float64 `json:"requestedMemory"`
	UsedMemory      float64 `json:"usedMemory"`
}

// Doctor describes what the doctor finds, or why it was not run.
type Doctor struct {
	doctor.Report
	// NotRun states why no check was made; empty if any was.
	NotRun string `json:"notRun,omitempty"`
}
