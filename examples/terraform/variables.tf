variable "cluster_name" {
  description = "Name of the EKS cluster, of its interruption queue, and in the names of its roles."
  type        = string
  default     = "shop"

  validation {
    condition     = length(var.cluster_name) <= 40
    error_message = "The name must have at most 40 characters: the role KarpenterControllerRole-NAME may have 64."
  }
}

variable "region" {
  description = "AWS region."
  type        = string
  default     = "eu-west-1"
}

variable "kubernetes_version" {
  description = "Version of Kubernetes."
  type        = string
  default     = "1.35"
}

variable "subnet_ids" {
  description = "Subnets of an existing VPC for the cluster and its nodes, in two zones at least, with a route to the internet. A VPC is created if this is empty."
  type        = list(string)
  default     = []
}

variable "chart_directory" {
  description = "Directory with the charts dovetail and dovetail-crd."
  type        = string
  default     = "../../deploy/chart"
}

variable "image_repository" {
  description = "Repository of the controller's image, without a tag; the chart's if empty."
  type        = string
  default     = ""
}
