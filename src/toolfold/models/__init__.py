"""Language models: `factory` creates the configured one; each provider adapter implements `toolfold.model.Model`.

Above: outputs, live sessions and agents, which take any `Model`. Below: configuration, secrets and the HTTP client.
"""
