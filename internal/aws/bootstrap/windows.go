package bootstrap

import "strings"

// windows returns a PowerShell script that calls the image's bootstrap script after the user's own lines.
func windows(in Input, k kubelet) string {
	lines := []string{"<powershell>"}
	if own := strings.TrimSpace(in.UserData); own != "" {
		lines = append(lines, own)
	}
	call := "& $EKSBootstrapScriptFile -EKSClusterName " + powerShellQuote(in.Cluster.Name) +
		" -APIServerEndpoint " + powerShellQuote(in.Cluster.Endpoint)
	if in.Cluster.CABundle != "" {
		call += " -Base64ClusterCA " + powerShellQuote(in.Cluster.CABundle)
	}
	call += " -KubeletExtraArgs " + powerShellQuote(strings.Join(flags(in, k), " "))
	if len(k.ClusterDNS) > 0 {
		call += " -DNSClusterIP " + powerShellQuote(k.ClusterDNS[0])
	}
	lines = append(lines,
		`[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"`,
		call,
		"</powershell>")
	return strings.Join(lines, "\n")
}
